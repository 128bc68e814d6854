package term

import (
	"testing"
	"testing/synctest"
	"time"
)

// epoch is when the operations of the tests began, which is also when synctest's clock begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// TestSteps plays a swap that fails and is rolled back. Part of it is over when the watching begins.
func TestSteps(t *testing.T) {
	onEachScreen(t, "steps", func(t *testing.T, p *Printer) {
		synctest.Test(t, func(t *testing.T) {
			s := p.Steps("Ctrl-C leaves it running. To watch again: vllmhost swap --attach")
			defer s.Close()
			at := func(d time.Duration) time.Time { return epoch.Add(d) }

			s.Start("preflight", at(-90*time.Second))
			s.Done("64 of 64 shards, 595 GB", at(-30*time.Second))
			s.Start("clean", at(-30*time.Second))
			s.Skip("nothing stale", at(-30*time.Second))

			s.Start("start", at(-20*time.Second))
			time.Sleep(150 * time.Millisecond)
			s.Detail("loading weights 58 % (37 of 64 shards), about 2m10s left")
			time.Sleep(100 * time.Millisecond)
			p.Warn("the engine is slow\x1b[2J")
			s.Fail("the engine died: EngineCore\nran out of GPU memory", time.Now())

			s.Undo("start", time.Now())
			s.Done("vllm-kimi-int4.service stopped, 9 processes gone", time.Now())
			s.Undo("stop", time.Now())
			time.Sleep(120 * time.Millisecond)
			s.Fail("vllm-minimax.service does not start", time.Now())
			s.Close()
			p.Line("The rollback failed.")
		})
	})
}

// TestStepsEnd shows that Close leaves no running line and no goroutine behind, also in the middle of a step.
func TestStepsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a goroutine that stays makes it fail
		p, shown := screen(true, true)
		s := p.Steps("footer")
		s.Start("start", time.Now())
		s.Close()
		s.Close()
		golden(t, "steps-end", shown.String())
	})
}
