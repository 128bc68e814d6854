package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"vllmhost/hostctl"
	"vllmhost/hostctl/swap"
)

// planned prints what an operation would do.
func (a *app) planned(ctx context.Context, host *hostctl.Host, req swap.Request) error {
	plan, err := host.PlanSwap(ctx, req)
	var refused *swap.RefusedError
	if errors.As(err, &refused) {
		return fail(exitFailed, refusedError(cannot(req), refused), refused.Hints()...)
	}
	if err != nil {
		return hostError(err)
	}
	last, err := host.LastTimes(plan)
	if err != nil {
		return hostError(err)
	}
	return printPlan(a.ui, plan, last)
}

// operate has an operation carried out, and follows it to its end.
func (a *app) operate(ctx context.Context, host *hostctl.Host, req swap.Request) error {
	id, err := host.Begin(ctx, req)
	if err != nil {
		return hostError(err)
	}
	return a.follow(ctx, host, id, req)
}

// attach follows the operation that goes on, after it was told to go back if cancel is set.
func (a *app) attach(ctx context.Context, host *hostctl.Host, cancel bool) error {
	open, err := host.UnderWay()
	if errors.Is(err, hostctl.ErrNothingUnderWay) {
		return fail(exitFailed, err, "vllmhost history")
	}
	if err == nil && cancel {
		err = host.Cancel(ctx, open.ID)
	}
	if err != nil {
		return hostError(err)
	}
	return a.follow(ctx, host, open.ID, open.Request)
}

func (a *app) follow(ctx context.Context, host *hostctl.Host, id string, req swap.Request) error {
	shown := &operationView{ui: a.ui, id: id, host: host}
	plan, res, err := host.Follow(ctx, id, shown.event)
	shown.close()
	var abandoned *hostctl.AbandonedError
	switch {
	case ctx.Err() != nil:
		a.ui.Note("Operation %s goes on. To watch it: vllmhost swap --attach   To make it go back: vllmhost swap --cancel", id)
		return end(exitDetached)
	case errors.As(err, &abandoned):
		return fail(exitFailed, err, "vllmhost swap --attach", "journalctl -u vllmhost-operation@"+id+" -n 50")
	case errors.Is(err, hostctl.ErrNotBegun):
		return fail(exitFailed, fmt.Errorf("%s: %w", cannot(req), err), "df -h /var/lib/vllmhost")
	case err != nil:
		return hostError(err)
	}
	return printResult(a.ui, id, plan, res, cannot(req))
}

// cannot begins the sentence that says why an operation failed.
func cannot(req swap.Request) string {
	if req.Back != "" {
		return "cannot roll back"
	}
	return fmt.Sprintf("cannot swap to %q", strings.Join(req.Names, ", "))
}

func refusedError(cannot string, refused *swap.RefusedError) error {
	return fmt.Errorf("%s: %v; nothing was touched", cannot, refused)
}
