package gate

import (
	"slices"
	"testing"

	"vllmhost/hostctl/ports"
	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// What systemd has to say of a unit that is to start: everything that stands in the way is told at once.
func TestPreflightOfAUnit(t *testing.T) {
	section := unitgen.Section{Instance: "a", Command: "/no/such/vllm", Port: 8000}
	for name, tt := range map[string]struct {
		status systemd.UnitStatus
		skip   []string
		want   []string
	}{
		"as it is written": {systemd.UnitStatus{Load: "loaded"}, []string{CheckEngine}, nil},
		"not loaded yet":   {systemd.UnitStatus{Load: "not-found"}, []string{CheckEngine}, nil},
		"masked":           {systemd.UnitStatus{Load: "masked"}, []string{CheckEngine}, []string{"vllm-a.service is masked"}},
		"masked, and more": {systemd.UnitStatus{Load: "masked"}, nil, []string{"vllm-a.service is masked",
			"cannot find the engine's program: stat /no/such/vllm: no such file or directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Preflight{
				Systemd: &fakeSystemd{units: map[string]systemd.UnitStatus{"vllm-a.service": tt.status}}, GPUs: &fakeGPUs{},
				Holders: func(unitgen.Section) ([]ports.Holder, error) { return nil, nil },
			}
			_, refusals, err := p.Check(t.Context(), Candidate{Section: section, Installed: section, Skip: tt.skip})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range refusals {
				got = append(got, r.Why)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
