package hostctl

import (
	"context"
	"fmt"
	"strings"

	"vllmhost/hostctl/probe"
	"vllmhost/hostctl/proc"
	"vllmhost/hostctl/swap"
	"vllmhost/unitgen"
)

// cgroups are those of this host.
type cgroups struct{}

// Members lists the processes of a cgroup. One that ends while it is looked at is left out.
func (cgroups) Members(cgroup string) ([]swap.Member, error) {
	pids, err := proc.Members(cgroup)
	if err != nil {
		return nil, err
	}
	var members []swap.Member
	for _, pid := range pids {
		p, err := proc.Read(pid)
		if err != nil || p.State == 'Z' {
			continue
		}
		text := fmt.Sprintf("%s, state %c", p, p.State)
		if where := proc.WaitsIn(pid); where != "" {
			text += " in " + where
		}
		members = append(members, swap.Member{PID: pid, Engine: isEngine(p), Text: text})
	}
	return members, nil
}

// isEngine reports whether a process is one of those that vLLM's server starts and gives a title: VLLM::EngineCore,
// VLLM::Worker_TP0 and so on.
func isEngine(p proc.Process) bool {
	return strings.HasPrefix(p.Comm, "VLLM::") && !strings.HasPrefix(p.Comm, "VLLM::APIServer")
}

// requests asks the instances of this host.
type requests struct{}

// Running returns how many requests an instance has. The metrics need no key.
func (requests) Running(ctx context.Context, s unitgen.Section) (int, bool) {
	n, err := probe.Target{Host: s.Host, Port: s.Port, UDS: s.UDS, TLS: s.TLS}.Requests(ctx)
	return n, err == nil
}
