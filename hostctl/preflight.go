package hostctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"vllmhost/hostctl/gate"
	"vllmhost/hostctl/models"
	"vllmhost/hostctl/swap"
	"vllmhost/unitgen"
)

// preflight finds out on paper whether a swap's new side can start.
type preflight struct {
	gate gate.Preflight
	skip []string
}

// Check looks at all instances to start. What it finds is worded for several when there are several.
func (p preflight) Check(ctx context.Context, plan *swap.Plan) (string, []swap.Problem, error) {
	var leaving []string
	for _, s := range plan.Stop {
		leaving = append(leaving, unitgen.UnitName(s.Instance))
	}
	var facts []string
	var problems []swap.Problem
	for _, t := range plan.New {
		if t.Serving {
			continue
		}
		found, wrong, err := p.one(ctx, t, leaving)
		if err != nil {
			return "", nil, err
		}
		for i := range wrong {
			if len(plan.New) > 1 {
				wrong[i].Text = t.Section.Instance + ": " + wrong[i].Text
			}
		}
		problems = append(problems, wrong...)
		facts = append(facts, found...)
	}
	return strings.Join(slices.Compact(facts), "; "), problems, nil
}

// one checks one instance: its model, which may take a while, beside all else.
func (p preflight) one(ctx context.Context, t swap.Target, leaving []string) (facts []string, problems []swap.Problem, err error) {
	c := gate.Candidate{Section: t.Section, Leaving: leaving, Skip: append(slices.Clone(p.skip), t.Section.Allow...)}
	unit := t.Install
	if t.Before != "" {
		if c.Installed, err = unitgen.ParseSection([]byte(t.Before)); err != nil {
			return nil, nil, fmt.Errorf("cannot read the unit of %q: %v", t.Section.Instance, err)
		}
	}
	if unit == "" {
		unit = t.Before
	}
	var report models.Report
	var verifyErr error
	var wait sync.WaitGroup
	checkModel := !slices.Contains(c.Skip, gate.CheckModel)
	if checkModel {
		wait.Go(func() { report, verifyErr = verifyAs(ctx, t.Section, []byte(unit)) })
	}
	found, refusals, err := p.gate.Check(ctx, c)
	wait.Wait()
	if err != nil {
		return nil, nil, err
	}
	switch {
	case !checkModel:
		facts = append(facts, "model skipped")
	case verifyErr != nil:
		problems = append(problems, swap.Problem{ID: gate.CheckModel, Text: verifyErr.Error()})
	case report.State != models.Complete:
		problems = append(problems, modelProblems(t.Section, report)...)
	default:
		facts = append(facts, report.Summary())
	}
	for _, r := range refusals {
		problem := swap.Problem{ID: cmp.Or(r.Check, "unit"), Text: r.Why}
		if r.Hint != "" {
			problem.Hints = []string{r.Hint}
		}
		problems = append(problems, problem)
	}
	return append(facts, found...), problems, nil
}

// maxModelProblems bounds how many damaged files are told one by one.
const maxModelProblems = 5

func modelProblems(s unitgen.Section, report models.Report) []swap.Problem {
	hint := "vllmhost models verify " + s.Model
	var problems []swap.Problem
	for i, p := range report.Problems {
		if i == maxModelProblems {
			problems = append(problems, swap.Problem{ID: gate.CheckModel, Text: fmt.Sprintf("and %d more files", len(report.Problems)-i)})
			break
		}
		problems = append(problems, swap.Problem{ID: gate.CheckModel, Text: p.String()})
	}
	if len(problems) == 0 {
		problems = []swap.Problem{{ID: gate.CheckModel, Text: fmt.Sprintf("the model is %s: %s", report.State, report.Summary())}}
	}
	problems[len(problems)-1].Hints = []string{hint}
	return problems
}

// resources are what a stopped engine may leave behind on this host.
type resources struct {
	host *Host
	skip []string
}

// AwaitFree waits for the GPUs and the ports of the instances.
func (r resources) AwaitFree(ctx context.Context, sections []unitgen.Section, report func(string)) (string, error) {
	var facts []string
	for _, s := range sections {
		fact, err := gate.AwaitFree(ctx, r.host.GPUs(), s, r.skip, report)
		if err != nil {
			return "", fmt.Errorf("cannot start %q: %v", s.Instance, err)
		}
		facts = append(facts, fact)
	}
	return strings.Join(slices.Compact(facts), "; "), nil
}

// Clean removes stale shared memory of the instances' users.
func (r resources) Clean(ctx context.Context, sections []unitgen.Section) (string, error) {
	var facts []string
	for _, s := range sections {
		fact, err := r.host.CleanBefore(ctx, s)
		if err != nil {
			return "", err
		}
		if fact != "" {
			facts = append(facts, fact)
		}
	}
	if len(facts) == 0 {
		return "nothing stale", nil
	}
	return strings.Join(slices.Compact(facts), "; "), nil
}
