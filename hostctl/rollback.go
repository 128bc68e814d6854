package hostctl

import (
	"fmt"

	"vllmhost/hostctl/swap"
	"vllmhost/unitgen"
)

// LastSwap returns the newest swap that moved the host, which a rollback goes back from.
func (h *Host) LastSwap() (Operation, error) {
	id, err := h.lastGood()
	if err != nil {
		return Operation{}, err
	}
	if id == "" {
		return Operation{}, &swap.RefusedError{Problems: []swap.Problem{{ID: "history", Text: "there is no swap to go back from",
			Hints: []string{"vllmhost history"}}}}
	}
	return h.Operation(id)
}

// backTo returns the instances that served before a swap, and makes their definitions of then what a swap to them would
// install.
func (h *Host) backTo(facts []swap.Fact, id string) ([]string, error) {
	o, err := h.Operation(id)
	if err != nil {
		return nil, err
	}
	open, _ := swap.OpenOf(o.Entries)
	if open.Plan == nil || len(open.Plan.Restore) == 0 {
		return nil, &swap.RefusedError{Problems: []swap.Problem{{ID: "history",
			Text: fmt.Sprintf("nothing served before %s %s (%s)", o.Op, o.ID, o.Summary), Hints: []string{"vllmhost history"}}}}
	}
	var names []string
	for _, s := range open.Plan.Restore {
		names = append(names, s.Instance)
	}
	for i, f := range facts {
		text := open.Plan.TextBefore(f.Section.Instance)
		if text == "" {
			continue
		}
		// What is pending now is newer than what is gone back to.
		facts[i].Pending = nil
		if !unitgen.Same(f.Text, []byte(text)) {
			facts[i].Pending = []byte(text)
		}
	}
	return names, nil
}
