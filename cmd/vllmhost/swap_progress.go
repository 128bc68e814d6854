package main

import (
	"time"

	"vllmhost/cmd/vllmhost/term"
	"vllmhost/hostctl/swap"
)

// swapProgress shows a swap's steps.
type swapProgress struct {
	ui    *term.Printer
	steps *term.Steps
}

func newSwapProgress(ui *term.Printer) *swapProgress { return &swapProgress{ui: ui} }

func (p *swapProgress) Announce(plan *swap.Plan) {
	p.ui.Line("Swap %s: %s", plan.ID, plan.Summary())
	p.ui.Line("")
	p.steps = p.ui.Steps("Ctrl-C goes back to what served before.")
}

func (p *swapProgress) Begin(step string)  { p.steps.Start(step, time.Now()) }
func (p *swapProgress) Undo(step string)   { p.steps.Undo(step, time.Now()) }
func (p *swapProgress) Detail(text string) { p.steps.Detail(text) }
func (p *swapProgress) Done(text string)   { p.steps.Done(text, time.Now()) }
func (p *swapProgress) Skip(text string)   { p.steps.Skip(text, time.Now()) }
func (p *swapProgress) Fail(text string)   { p.steps.Fail(text, time.Now()) }

func (p *swapProgress) Lost(step string, err error) {
	p.ui.Warn("the record stops at step %q: %v", step, err)
}

func (p *swapProgress) close() {
	if p.steps != nil {
		p.steps.Close()
	}
}
