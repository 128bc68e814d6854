package conf

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// checkAddress checks where an instance serves, and as what.
func (t table) checkAddress(in *Instance) {
	port, uds := t.n.child("port"), t.n.child("uds")
	switch {
	case port == nil && uds == nil:
		t.l.onTable(t.n, t.at, fmt.Sprintf("%s has neither port nor uds", t.at.table()), "port = 8000, say")
	case port != nil && uds != nil:
		t.wrong("uds", faultf("cannot stand beside port").hinted("keep one of the two"))
	case port == nil:
		t.wrong("host", faultf("means nothing beside uds").hinted("leave it out"))
	}
	const firstUnprivileged = 1024 // net.ipv4.ip_unprivileged_port_start, unless somebody changed it (ip(7))
	if in.Port < firstUnprivileged {
		f := faultf("is below %d, which no engine has the right to use", firstUnprivileged).
			hinted("take a higher one, or lower net.ipv4.ip_unprivileged_port_start")
		f.warning = true
		t.wrong("port", f)
	}
	t.checkHostAddress(in.Host)
	t.checkPath("uds", &in.UDS)
	const longestSocket = 107 // bytes of sun_path, without the NUL (unix(7))
	if len(in.UDS) > longestSocket {
		t.wrong("uds", faultf("has %d bytes, and the path of a socket at most %d", len(in.UDS), longestSocket))
	}
	t.checkPath("ssl_certfile", &in.SSLCertfile)
	t.checkPath("ssl_keyfile", &in.SSLKeyfile)
	for _, pair := range [][2]string{{"ssl_certfile", "ssl_keyfile"}, {"ssl_keyfile", "ssl_certfile"}} {
		if t.n.child(pair[1]) == nil {
			t.wrong(pair[0], faultf("needs %s", pair[1]))
		}
	}
	t.checkServedNames(in.ServedModelName)
}

func (t table) checkHostAddress(host string) {
	if addr, err := netip.ParseAddr(host); err == nil && addr.Zone() == "" {
		return
	}
	f := faultf("wants an IP address, got %s", quote(host))
	switch {
	case host == "localhost":
		f.hinted(`write "127.0.0.1"`)
	case strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]"):
		f.hinted("write it without brackets")
	default:
		f.hinted(`"0.0.0.0" for all of this host's IPv4 addresses`)
	}
	t.wrong("host", f)
}

func (t table) checkServedNames(names []string) {
	const longest = 256
	if t.has("served_model_name") && len(names) == 0 {
		t.wrong("served_model_name", faultf("is empty").hinted("leave it out to answer to the name of the model"))
	}
	for i, name := range names {
		f := oneLine(name)
		switch {
		case f != nil:
		case strings.TrimSpace(name) != name || name == "":
			f = faultf("holds an empty name, or one with spaces around it: %s", quote(name))
		case len(name) > longest:
			f = faultf("holds a name of more than %d bytes", longest)
		case slices.Contains(names[:i], name):
			f = faultf("holds %s twice", quote(name))
		}
		if f != nil {
			t.wrong("served_model_name", f.at(i))
		}
	}
}

// checkGPUs checks which GPUs an instance uses, against those of the host.
func (t table) checkGPUs(in *Instance, host GPUCount) {
	switch {
	case host == 0 && in.GPUs.Any():
		t.wrong("gpus", faultf("uses GPUs, and this host has none: gpus = 0 in [host]").hinted("leave it out"))
	case host > 0:
		for i, item := range t.items("gpus") {
			if index, ok := item.value.(int64); ok && index >= int64(host) {
				t.wrong("gpus", faultf("names GPU %d, and this host has %d", index, host).
					hinted("%s; see gpus in [host]", GPUs{Indices: upTo(int(host))}.words()).at(i))
			}
		}
	}
	const mostRanks = 1024
	for key, size := range map[string]int{
		"tensor_parallel_size":   in.TensorParallelSize,
		"pipeline_parallel_size": in.PipelineParallelSize,
		"data_parallel_size":     in.DataParallelSize,
	} {
		if size < 1 || size > mostRanks {
			t.wrong(key, faultf("must be from 1 to %d", mostRanks))
		}
	}
	t.checkWorldSize(in, host)
	if u := in.GPUMemoryUtilization; !(u > 0 && u <= 1) {
		f := faultf("must be above 0 and at most 1")
		if u >= 2 && u <= 100 { // a percentage
			f.hinted("write %v", u/100)
		}
		t.wrong("gpu_memory_utilization", f)
	}
	if in.ShareGPUs && t.n.child("gpu_memory_utilization") == nil {
		t.wrong("share_gpus", faultf("needs gpu_memory_utilization").hinted("else vLLM takes nearly all of the memory"))
	}
}

// checkWorldSize checks that there is a GPU for each worker. Where other options spread the workers over hosts, or
// start some of them elsewhere, their number here is not known.
func (t table) checkWorldSize(in *Instance, host GPUCount) {
	have := in.GPUs.Count()
	if in.GPUs.All && host > 0 {
		have = int(host)
	}
	elsewhere := slices.ContainsFunc(in.Args, func(a Arg) bool {
		flag := plainFlag(a.Flag)
		return flag == "nnodes" || strings.HasPrefix(flag, "data-parallel-")
	})
	need := in.TensorParallelSize * in.PipelineParallelSize * in.DataParallelSize
	if have == 0 || need <= have || elsewhere {
		return
	}
	factors, last := "", ""
	for _, key := range []string{"tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"} {
		if t.n.child(key) == nil {
			continue
		}
		if !t.has(key) {
			return
		}
		if last != "" {
			factors += " x "
		}
		factors, last = factors+key, key
	}
	if last == "" || t.n.child("gpus") != nil && !t.has("gpus") {
		return
	}
	t.says(Error, last, fmt.Sprintf("%s = %d workers, and instance %q has %s", factors, need, t.at[1], count(have, "GPU")),
		"each worker needs one")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func upTo(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// items returns the items of a list, when the key has one and it is right.
func (t table) items(key string) []*node {
	if !t.has(key) {
		return nil
	}
	return t.n.child(key).items
}

// checkInstance checks the keys that stand alone.
func (t table) checkInstance(in *Instance) {
	const longestDescription = 200
	if f := oneLine(in.Description); f != nil {
		t.wrong("description", f)
	} else if utf8.RuneCountInString(in.Description) > longestDescription {
		t.wrong("description", faultf("has more than %d characters", longestDescription))
	}
	t.checkEnv(in.Env)
	if text, ok := t.checkSecretFile("env_file", in.EnvFile); ok {
		t.wrong("env_file", envFileFault(text))
	}
	t.checkAccount("user", in.User)
	t.checkAccount("group", in.Group)
	if in.Shm == ShmHost {
		t.wrong("shm_size", faultf(`means nothing with shm = "host"`).hinted("leave it out"))
	}
	const leastShm = 1 << 20
	if in.ShmSize < leastShm {
		t.wrong("shm_size", faultf("must be at least %s", Size(leastShm)))
	}
	t.checkPaths("read_write_paths", in.ReadWritePaths)
	for i, p := range in.ReadWritePaths {
		if p == "/" {
			t.wrong("read_write_paths", faultf("would let the engine write everywhere").at(i))
		}
	}
	t.checkWords("restrict_address_families", in.RestrictAddressFamilies, familyForm(), `such as "AF_VSOCK"`)
	t.checkWords("system_call_filter", in.SystemCallFilter, syscallForm(), `the name of a system call, or a group such as "@debug"`)
	t.checkWords("device_allow", in.DeviceAllow, deviceForm(), `such as "/dev/infiniband/uverbs0" or "char-infiniband_verbs"`)
	t.checkAllow()
}

var (
	accountForm = lazily(`^[a-z_][a-z0-9_-]{0,30}$`)
	familyForm  = lazily(`^AF_[A-Z0-9_]+$`)
	syscallForm = lazily(`^@?[a-z0-9][a-z0-9_-]*$`)
	deviceForm  = lazily(`^(/dev/[A-Za-z0-9._+:@-]+(/[A-Za-z0-9._+:@-]+)*|char-[A-Za-z0-9._*?-]+)$`)
	findingForm = lazily(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
)

// checkAccount checks the name of a system user or group.
func (t table) checkAccount(key, name string) {
	switch {
	case !accountForm().MatchString(name):
		f := faultf("cannot be the name of a %s: %s", key, quote(name))
		f.hinted("1 to 31 of a-z, 0-9, _ and -, beginning with a letter or _")
		t.wrong(key, f)
	case key == "user" && name == "root":
		t.wrong(key, faultf("may not be root").hinted("leave it out for a user of its own"))
	}
}

func (t table) checkWords(key string, words []string, form *regexp.Regexp, hint string) {
	for i, w := range words {
		if !form.MatchString(w) || strings.Contains(w, "/../") || strings.HasSuffix(w, "/..") {
			t.wrong(key, faultf("cannot hold %s", quote(w)).hinted("%s", hint).at(i))
		}
	}
}

// checkAllow checks that each accepted finding has a reason.
func (t table) checkAllow() {
	n := t.n.child("allow")
	if n == nil || n.bad || n.kind != tableKind {
		return
	}
	for _, item := range n.items {
		reason, ok := item.value.(string)
		switch {
		case !ok: // reported when it was read
		case !findingForm().MatchString(item.name):
			t.l.on(item.src, item.key, t.at.key("allow").key(item.name),
				fmt.Sprintf("%s is no finding's id", quote(item.name)), "the id that the finding was reported with")
		case strings.TrimSpace(reason) == "":
			t.l.wrongValue(item, t.at.key("allow").key(item.name), faultf("needs a reason").hinted("for those who read this after you"))
		default:
			if f := oneLine(reason); f != nil {
				t.l.wrongValue(item, t.at.key("allow").key(item.name), f)
			}
		}
	}
}

// checkLimits checks the timeouts of an instance and what its probe asks for.
func (t table) checkLimits(in *Instance) {
	const day = Duration(24 * time.Hour)
	second := Duration(time.Second)
	t.checkRange("drain_timeout", in.DrainTimeout, second, day)
	if in.DrainTimeout%second != 0 {
		t.wrong("drain_timeout", faultf("must be whole seconds"))
	}
	t.checkRange("stall_timeout", in.StallTimeout, second, day)
	t.checkRange("start_timeout", in.StartTimeout, second, 7*day)
	if in.StallTimeout > in.StartTimeout {
		t.wrong("stall_timeout", faultf("is longer than start_timeout (%s)", in.StartTimeout))
	}
	probe := t
	probe.at = t.at.key("probe")
	if probe.n = t.n.child("probe"); probe.n == nil || probe.n.kind != tableKind {
		return
	}
	probe.checkRange("first_request_timeout", in.Probe.FirstRequestTimeout, second, day)
	const fastest = 1e9
	for key, rate := range map[string]float64{"min_single_tps": in.Probe.MinSingleTPS, "min_load_tps": in.Probe.MinLoadTPS} {
		if !(rate >= 0 && rate <= fastest) {
			probe.wrong(key, faultf("must be a rate of tokens per second, 0 or more"))
		}
	}
}

func (t table) checkRange(key string, d, least, most Duration) {
	if d < least || d > most {
		t.wrong(key, faultf("must be from %s to %s", least, most))
	}
}
