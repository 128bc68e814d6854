package conf

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDuration(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
		back string // as String writes it
	}{
		{"30s", 30 * time.Second, "30s"},
		{"90s", 90 * time.Second, "1min 30s"},
		{"15min", 15 * time.Minute, "15min"},
		{"15 minutes", 15 * time.Minute, "15min"},
		{"120m", 2 * time.Hour, "2h"},
		{"1h30min", 90 * time.Minute, "1h 30min"},
		{"1h 30min 5s", 90*time.Minute + 5*time.Second, "1h 30min 5s"},
		{"1.5h", 90 * time.Minute, "1h 30min"},
		{"0.1s", 100 * time.Millisecond, "100ms"},
		{"2 days", 48 * time.Hour, "2d"},
		{"1w", 168 * time.Hour, "1w"},
		{"5us", 5 * time.Microsecond, "5us"},
		{"0s", 0, "0s"},
	} {
		var d, again Duration
		if err := d.UnmarshalText([]byte(c.text)); err != nil || time.Duration(d) != c.want || d.String() != c.back {
			t.Errorf("%q: %v %q, %v; want %v %q", c.text, time.Duration(d), d, err, c.want, c.back)
		}
		if err := again.UnmarshalText([]byte(d.String())); err != nil || again != d {
			t.Errorf("%q does not come back: %v, %v", d, again, err)
		}
	}
	for _, text := range []string{"", "s", "30", "1.5us", "1h30", "1h 30", "-1s", "1e3s", "1/2s", "infinity", "300000w", "1month"} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %v, want an error", text, d)
		}
	}
}

func TestSize(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
		back string
	}{
		{"50GB", 50e9, "50GB"},
		{"46GiB", 46 << 30, "46GiB"},
		{"1.7TB", 1.7e12, "1700GB"},
		{"0.5 GiB", 1 << 29, "512MiB"},
		{"1000MB", 1e9, "1GB"},
		{"1kB", 1000, "1kB"},
		{"1KB", 1000, "1kB"},
		{"123B", 123, "123B"},
		{"0B", 0, "0B"},
	} {
		var s, again Size
		if err := s.UnmarshalText([]byte(c.text)); err != nil || int64(s) != c.want || s.String() != c.back {
			t.Errorf("%q: %d %q, %v; want %d %q", c.text, int64(s), s, err, c.want, c.back)
		}
		if err := again.UnmarshalText([]byte(s.String())); err != nil || again != s {
			t.Errorf("%q does not come back: %v, %v", s, again, err)
		}
	}
}

func TestPercent(t *testing.T) {
	for _, text := range []string{"0%", "7%", "10%", "2.5%", "33.333333%", "100%"} {
		var p Percent
		if err := p.UnmarshalTOML(text); err != nil || p.String() != text {
			t.Errorf("%q comes back as %q, %v", text, p, err)
		}
	}
	var p Percent
	if err := p.UnmarshalTOML("10%"); err != nil || p != 0.1 {
		t.Errorf("10%% is %v, %v", float64(p), err)
	}
}

func TestGPUs(t *testing.T) {
	list := func(i ...int) GPUs { return GPUs{Indices: i} }
	a, b := GPUs{UUIDs: []string{"GPU-a"}}, GPUs{UUIDs: []string{"GPU-b"}}
	for _, c := range []struct {
		gpus GPUs
		want string
	}{
		{GPUs{}, "none"}, {GPUs{All: true}, "all"}, {list(0), "0"}, {list(0, 2), "0,2"},
		{list(0, 1, 2, 3, 4, 5, 6, 7), "0-7"}, {list(0, 2, 3, 5), "0,2-3,5"}, {a, "GPU-a"},
	} {
		if got := c.gpus.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	for _, c := range []struct {
		a, b GPUs
		want bool
	}{
		{GPUs{All: true}, list(3), true},
		{GPUs{All: true}, GPUs{}, false},
		{list(0, 1), list(1, 2), true},
		{list(0, 1), list(2, 3), false},
		{a, a, true},
		{a, b, false},
		{a, list(0), true}, // may be the same
		{GPUs{}, GPUs{}, false},
	} {
		if c.a.Overlaps(c.b) != c.want || c.b.Overlaps(c.a) != c.want {
			t.Errorf("%v and %v: want %v", c.a, c.b, c.want)
		}
	}
}

func TestSuggest(t *testing.T) {
	known := []string{"gpus", "group", "host", "port", "min_load_tps", "tensor_parallel_size"}
	for name, want := range map[string]string{
		"gpu": "gpus", "GPUS": "gpus", "prot": "port", "hosts": "host", "tensor-paralel-size": "tensor_parallel_size",
		"min_load": "min_load_tps", "model": "", "": "", "x": "",
	} {
		if got := Suggest(name, known); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestConflicts(t *testing.T) {
	p := &Profile{Instances: map[string]*Instance{
		"all":    {Port: 1, GPUs: GPUs{All: true}},
		"low":    {Port: 2, GPUs: GPUs{Indices: []int{0, 1, 2, 3}}},
		"high":   {Port: 3, GPUs: GPUs{Indices: []int{4, 5, 6, 7}}},
		"port":   {Port: 3, GPUs: GPUs{Indices: []int{0}}},
		"half":   {Port: 4, GPUs: GPUs{Indices: []int{9}}, ShareGPUs: true, GPUMemoryUtilization: 0.5},
		"other":  {Port: 5, GPUs: GPUs{Indices: []int{9}}, ShareGPUs: true, GPUMemoryUtilization: 0.5},
		"more":   {Port: 6, GPUs: GPUs{Indices: []int{9}}, ShareGPUs: true, GPUMemoryUtilization: 0.6},
		"silent": {Port: 7, GPUs: GPUs{Indices: []int{9}}, ShareGPUs: true},
		"alone":  {Port: 8, GPUs: GPUs{Indices: []int{9}}, GPUMemoryUtilization: 0.1},
		"uds":    {UDS: "/run/a"},
		"uds2":   {UDS: "/run/a"},
		"uds3":   {UDS: "/run/b"},
	}}
	for _, c := range []struct{ a, b, want string }{
		{"all", "low", "both use GPUs 0-3"},
		{"low", "high", ""},
		{"low", "port", "both use GPU 0"},
		{"high", "port", "both use port 3"},
		{"half", "other", ""},
		{"half", "more", "both use GPU 9, and together more than all of the memory"},
		{"half", "silent", "both use GPU 9, and together more than all of the memory"},
		{"half", "alone", "both use GPU 9"},
		{"uds", "uds2", "both use /run/a"},
		{"uds", "uds3", ""},
		{"all", "uds", ""},
		{"all", "all", ""},
		{"all", "nobody", ""},
	} {
		if got := p.ConflictReason(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %q, want %q", c.a, c.b, got, c.want)
		}
		if p.Conflicts(c.b, c.a) != (c.want != "") {
			t.Errorf("%s and %s: not the same the other way round", c.a, c.b)
		}
	}
	if diff := cmp.Diff([]string{"all", "alone", "half"}, p.InstanceNames()[:3]); diff != "" {
		t.Error(diff)
	}
}
