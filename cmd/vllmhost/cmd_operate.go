package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"vllmhost/hostctl"
	"vllmhost/hostctl/swap"
)

func newOperateCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "operate ID",
		Short: "Carry out an operation",
		Long: `Carries out the swap or rollback that was asked for under this ID, or goes on with one that was interrupted. It runs in
vllmhost-operation@ID.service, which vllmhost swap and vllmhost rollback start. SIGINT, and a stop of the unit, make it
go back; a shutdown of the host leaves it to the next boot.`,
		Example:     "  ExecStart=/usr/bin/vllmhost operate 7f3k",
		Annotations: exits(exitDone, exitFailed, exitAgain),
		GroupID:     groupUnits,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context() // ends with a signal
			host, err := a.open(context.WithoutCancel(ctx))
			if err != nil {
				return fail(exitAgain, err)
			}
			defer host.Close()
			log := slog.New(hookLog{a.ui.Err()})
			res, err := host.Work(ctx, args[0], &workLog{log: log})
			var strange *swap.NotRecordError
			switch {
			case errors.Is(err, hostctl.ErrHalting):
				log.Warn(err.Error())
				return nil
			case errors.As(err, &strange), errors.Is(err, hostctl.ErrNotAsked), errors.Is(err, hostctl.ErrNotBegun):
				return hostError(err)
			case err != nil:
				return fail(exitAgain, err)
			}
			log.Info(fmt.Sprintf("%s in %.1fs %s", res.State, res.Elapsed, res.Error))
			return nil
		},
	}
}

// workLog tells the journal what an operation does, and systemd's status what it is doing. Each line of the record changes
// the status, by which those who follow know that there is one.
type workLog struct {
	log  *slog.Logger
	step string
}

func (w *workLog) Announce(plan *swap.Plan) { w.log.Info("swap " + plan.ID + ": " + plan.Summary()) }
func (w *workLog) Begin(step string)        { w.step = step }
func (w *workLog) Undo(step string)         { w.step = "undo " + step }
func (w *workLog) Detail(text string)       { w.status(w.step + ": " + text) }
func (w *workLog) Done(text string)         { w.log.Info(w.step + ": " + text) }
func (w *workLog) Skip(text string)         { w.log.Info(w.step + ": " + text) }
func (w *workLog) Fail(text string)         { w.log.Warn(w.step + " failed: " + text) }
func (w *workLog) Lost(step string, err error) {
	w.log.Error(fmt.Sprintf("the record stops at step %q: %v", step, err))
}

func (w *workLog) Recorded(e swap.Entry) {
	switch {
	case e.Step == "" || e.State.Closed():
		w.status(string(e.State))
	case e.State == swap.Doing:
		w.status(e.Step)
	case e.State == swap.Undoing:
		w.status("undo " + e.Step)
	default:
		w.status(fmt.Sprintf("%s %s", e.Step, e.State))
	}
}

func (w *workLog) status(text string) {
	// Outside of a unit there is nobody to tell.
	_, _ = daemon.SdNotify(false, "STATUS="+text)
}

func newRecoverCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "recover",
		Short: "Repair what a crash of the host interrupted",
		Long: `Runs at boot before any instance starts, from vllmhost-recover.service. Where a swap was interrupted, it makes the unit
files and what starts at boot those of one side, and has the operation's unit started, which goes on. It starts no
instance and waits for none.`,
		Example:     "  ExecStart=/usr/bin/vllmhost recover",
		Annotations: exits(exitDone, exitFailed),
		GroupID:     groupUnits,
		RunE: func(cmd *cobra.Command, args []string) error {
			host, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer host.Close()
			done, err := host.Recover(cmd.Context())
			log := slog.New(hookLog{a.ui.Err()})
			for _, text := range done {
				log.Warn(text)
			}
			if err != nil {
				return hostError(err)
			}
			return nil
		},
	}
}
