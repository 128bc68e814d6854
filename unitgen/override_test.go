package unitgen_test

import (
	"slices"
	"strings"
	"testing"

	"vllmhost/unitgen"
)

func TestOverrides(t *testing.T) {
	section := unitgen.Section{
		Instance: "a", Model: "/srv/a", Served: []string{"kimi", "k2"}, Port: 8000, Host: "0.0.0.0", GPUs: []string{"0", "1"},
	}
	const argv = "/opt/vllm/bin/vllm serve /srv/a --served-model-name kimi k2 --host 0.0.0.0 --port 8000 --seed 1"
	const env = "HOME=/ CUDA_VISIBLE_DEVICES=0,1"
	for _, tt := range []struct {
		name, argv, env string
		want            []string
	}{
		{"as written", argv, env, nil},
		{"another option", argv + " --max-model-len 10", env, nil},
		{"a wrapper", "/usr/bin/numactl -N0 " + argv, env, nil},
		{"= and _", strings.Replace(argv, "--served-model-name kimi k2", "--served_model_name kimi k2", 1) + " --port=8000", env, nil},
		{"another port", strings.Replace(argv, "8000", "8001", 1), env, []string{"--port is 8001, the definition says 8000"}},
		{"a second port, which wins", argv + " --port=9", env, []string{"--port is 9, the definition says 8000"}},
		{"no port", strings.Replace(argv, "--port 8000", "", 1), env, []string{"--port is nothing, the definition says 8000"}},
		{"another model and name", "vllm serve /srv/b --served-model-name kimi --host 0.0.0.0 --port 8000", env,
			[]string{"the model is /srv/b, the definition says /srv/a", "--served-model-name is kimi, the definition says kimi k2"}},
		{"a socket instead", argv + " --uds /run/s", env, []string{"--uds is /run/s, the definition says nothing"}},
		{"other GPUs", argv, env + " CUDA_VISIBLE_DEVICES=2", []string{"CUDA_VISIBLE_DEVICES is 2, the definition says 0,1"}},
		{"something else", "/bin/sleep 9", env, []string{`the command is not that of "vllm serve"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := section.Overrides(strings.Fields(tt.argv), strings.Fields(tt.env)); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCrowd(t *testing.T) {
	share := func(name string, part float64, gpus ...string) unitgen.Section {
		return unitgen.Section{Instance: name, GPUs: gpus, AllGPUs: len(gpus) == 0, ShareGPUs: true, GPUUtilization: part}
	}
	for _, tt := range []struct {
		name string
		all  []unitgen.Section
		want string
	}{
		{"two halves", []unitgen.Section{share("a", .5, "0"), share("b", .5, "0")}, ""},
		{"three thirds", []unitgen.Section{share("a", .33, "0"), share("b", .33, "0"), share("c", .34, "0")}, ""},
		{"three halves", []unitgen.Section{share("a", .5, "0"), share("b", .5, "0"), share("c", .5, "0")},
			"a, b, c together want 150 % of the memory of GPU 0"},
		{"three halves, on two GPUs", []unitgen.Section{share("a", .5, "0"), share("b", .5, "0"), share("c", .5, "1")}, ""},
		{"one on all", []unitgen.Section{share("a", .5, "0"), share("b", .4, "0"), share("c", .3)},
			"a, b, c together want 120 % of the memory of GPU 0"},
		{"all on all", []unitgen.Section{share("a", .5), share("b", .5), share("c", .5)},
			"a, b, c together want 150 % of the memory of all GPUs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := unitgen.Crowd(tt.all); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
