package unitgen

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"vllmhost/conf"
)

// program is where the package installs vllmhost; units call it by this absolute path.
const program = "/usr/bin/vllmhost"

// Times between attempts, and how many of them; see startLimit.
const (
	restartPause   = 15 * time.Second
	startBurst     = 3
	stopMargin     = 10 * time.Second // what vLLM needs to end after its streams have (5.5 s stream, 7 s teardown: measured)
	systemPath     = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	cacheRoot      = "/var/cache/"
	runtimeRoot    = "/run/"
	minOpenFiles   = "65536" // vLLM warns below 65535
	oomScoreAdjust = "200"   // under memory pressure the kernel ends the model, not sshd
)

// job is what the renderer knows of one instance, resolved.
type job struct {
	profile  *conf.Profile
	name     string
	instance *conf.Instance
	engine   *conf.Engine
	model    *conf.Model
	gpu      bool // runs on GPUs
}

// Render returns the unit of one instance of a profile that Load returned.
func Render(p *conf.Profile, instance string) Unit {
	in := p.Instances[instance]
	j := job{
		profile: p, name: instance, instance: in,
		engine: p.Engines[in.Engine], model: p.Models[in.Model],
		gpu: in.GPUs.All || len(in.GPUs.Indices) > 0 || len(in.GPUs.UUIDs) > 0,
	}
	w := &writer{}
	w.line("# Written by vllmhost from " + p.Files[0] + "; change that file, then: vllmhost apply")
	w.line("# For settings of your own that the profile does not know: systemctl edit " + UnitName(instance))
	w.blank()
	j.unitSection(w)
	w.blank()
	j.serviceSection(w)
	w.blank()
	w.line("[Install]")
	w.set("WantedBy", "multi-user.target")
	w.blank()
	w.why("What vllmhost itself reads of this unit. The hash tells edits by hand.")
	j.section().write(w)
	return Unit{Name: UnitName(instance), Text: Seal([]byte(w.b.String()))}
}

func (j job) unitSection(w *writer) {
	w.line("[Unit]")
	w.set("Description", specifierSafe(j.description()))
	w.set("Documentation", "man:vllmhost(8)")
	w.why("A model loads for minutes. Without the default dependencies it starts at boot beside multi-user.target,")
	w.why("which does not wait for it, while units ordered after this one do.")
	w.set("DefaultDependencies", "no")
	w.set("Requires", "sysinit.target")
	after := "sysinit.target basic.target network-online.target vllmhost-recover.service"
	if j.gpu {
		after += " nvidia-persistenced.service nvidia-fabricmanager.service"
	}
	w.set("After", after)
	w.set("Wants", "network-online.target")
	w.set("Conflicts", "shutdown.target")
	w.set("Before", "shutdown.target")
	w.set("RequiresMountsFor", quoteAll([]string{j.model.Path, path.Dir(j.engine.Command)}))
	w.why("An engine that dies at each start is tried %d times, however long each start takes.", startBurst)
	w.set("StartLimitIntervalSec", seconds(j.startLimitInterval()))
	w.set("StartLimitBurst", strconv.Itoa(startBurst))
}

// startLimitInterval is long enough that startBurst starts which each take the longest allowed still fall into it.
func (j job) startLimitInterval() time.Duration {
	return startBurst * (time.Duration(j.instance.StartTimeout) + restartPause + j.stopTimeout())
}

func (j job) stopTimeout() time.Duration {
	return time.Duration(j.instance.DrainTimeout) + stopMargin
}

func (j job) description() string {
	if j.instance.Description != "" {
		return j.instance.Description
	}
	d := "vLLM " + j.name
	if j.model.Repo != "" {
		d += " (" + j.model.Repo + ")"
	}
	if j.instance.UDS != "" {
		return d + " on " + j.instance.UDS
	}
	return fmt.Sprintf("%s on port %d", d, j.instance.Port)
}

func (j job) serviceSection(w *writer) {
	in := j.instance
	w.line("[Service]")
	w.set("Type", "exec")
	w.why("Lets \"vllmhost await\" show the load in systemctl status and extend the start timeout while it moves.")
	w.set("NotifyAccess", "exec")
	j.identity(w)
	j.environment(w)
	w.blank()
	w.why("As root: nothing else holds the port or the GPUs.")
	w.set("ExecStartPre", "+"+program+" guard "+j.name)
	w.why("As the engine's user, in its sandbox: the model is complete and readable.")
	w.set("ExecStartPre", program+" models verify --quick --unit "+j.name)
	w.set("ExecStart", command(j.argv()))
	w.why("As root: \"active\" means that this engine answers on its port, with the right model, and made a token.")
	w.set("ExecStartPost", "+"+program+" await "+j.name)
	w.blank()
	w.why("vLLM exits with 0 when its engine dies, and with 2 for an option it does not know.")
	w.set("Restart", "always")
	w.set("RestartPreventExitStatus", "2")
	w.set("RestartSec", seconds(restartPause))
	w.why("SIGTERM to the server alone, which then drains its engine; what is left is killed.")
	w.set("KillMode", "mixed")
	w.why("How long a start may stand still; await extends it up to %s.", in.StartTimeout)
	w.set("TimeoutStartSec", seconds(time.Duration(in.StallTimeout)))
	w.set("TimeoutStopSec", seconds(j.stopTimeout()))
	w.set("LogRateLimitIntervalSec", "0")
	w.set("OOMPolicy", "stop")
	w.set("OOMScoreAdjust", oomScoreAdjust)
	w.set("LimitNOFILE", minOpenFiles)
	w.set("TasksMax", "infinity")
	w.blank()
	j.sandbox(w)
}

func (j job) identity(w *writer) {
	in := j.instance
	if in.User == "" {
		w.why("A user of its own: no other instance can read its key from /proc.")
		w.set("DynamicUser", "yes")
	}
	w.set("User", j.user())
	w.set("SupplementaryGroups", in.Group)
	w.why("Compiled kernels are code: one cache for each instance and engine, for nobody else.")
	w.set("CacheDirectory", Quote(j.cache()))
	w.set("CacheDirectoryMode", "0700")
	w.set("RuntimeDirectory", Quote("vllm/"+j.name))
	w.set("WorkingDirectory", specifierSafe(runtimeRoot+"vllm/"+j.name))
}

func (j job) user() string {
	if j.instance.User != "" {
		return j.instance.User
	}
	return "vllm-" + j.name
}

func (j job) cache() string { return "vllm/" + j.name + "-" + j.instance.Engine }

func (j job) argv() []string { return append([]string{j.engine.Command}, j.serveArgs()...) }

// seconds writes a duration as systemd.time(7) reads it, in the largest unit that divides it.
func seconds(d time.Duration) string {
	s := int64(d / time.Second)
	switch {
	case s > 0 && s%3600 == 0:
		return strconv.FormatInt(s/3600, 10) + "h"
	case s > 0 && s%60 == 0:
		return strconv.FormatInt(s/60, 10) + "min"
	}
	return strconv.FormatInt(s, 10)
}

// command writes an ExecStart= value with one option a line. The ":" prefix keeps systemd from replacing "$".
func command(argv []string) string {
	var b strings.Builder
	first := Quote(":" + argv[0])
	if isBare(argv[0]) {
		first = ":" + argv[0]
	}
	b.WriteString(first)
	for i, a := range argv[1:] {
		if strings.HasPrefix(a, "--") && i > 0 {
			b.WriteString(" \\\n   ")
		}
		b.WriteString(" " + Quote(a))
	}
	return b.String()
}
