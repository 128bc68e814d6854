//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"vllmhost/testhost"
)

// commandLimit bounds a command of a story that hangs.
const commandLimit = 2 * time.Minute

// A story is one script on one suite, and its host.
type story struct {
	suite  suite
	host   *testhost.Host
	failed func() bool
	log    func(string)
}

type storyKey struct{}

func (s *story) end() {
	if s.host != nil {
		retire(s.host, s.failed(), s.log)
	}
}

// commands are those of the stories' language that testscript has not.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"boot":     cmdBoot,
		"host":     cmdHost,
		"hostfile": cmdHostFile,
		"reboot":   cmdReboot,
		"powercut": cmdPowerCut,
		"wait-for": cmdWaitFor,
	}
}

// of returns the story of a script, with a host unless it has none yet.
func of(ts *testscript.TestScript) *story {
	s := ts.Value(storyKey{}).(*story)
	if s.host == nil {
		ts.Fatalf("no host yet: begin with boot")
	}
	return s
}

// parse reads a command's flags; what is left has to be at least one word.
func parse(ts *testscript.TestScript, flags *flag.FlagSet, args []string, least int) []string {
	flags.SetOutput(io.Discard)
	if err := flags.Parse(args); err != nil {
		ts.Fatalf("%s: %v", flags.Name(), err)
	}
	if flags.NArg() < least {
		ts.Fatalf("%s: want at least %d words", flags.Name(), least)
	}
	return flags.Args()
}

func notNegated(ts *testscript.TestScript, neg bool, name string) {
	if neg {
		ts.Fatalf("unsupported: ! %s", name)
	}
}

// boot [-bare] [-gpus N] [-model NAME[:SHARDS[:BYTES]]]...
func cmdBoot(ts *testscript.TestScript, neg bool, args []string) {
	notNegated(ts, neg, "boot")
	s := ts.Value(storyKey{}).(*story)
	if s.host != nil {
		ts.Fatalf("the story has a host already")
	}
	opts := testhost.Options{Release: s.suite.release, Cgroups: s.suite.cgroups, Payload: payload}
	flags := flag.NewFlagSet("boot", flag.ContinueOnError)
	bare := flags.Bool("bare", false, "")
	flags.IntVar(&opts.GPUs, "gpus", 0, "")
	flags.Func("model", "", func(text string) error {
		model, err := parseModel(text)
		opts.Models = append(opts.Models, model)
		return err
	})
	if rest := parse(ts, flags, args, 0); len(rest) > 0 {
		ts.Fatalf("boot: unknown %q", rest)
	}
	if *bare {
		opts.Payload = testhost.Payload{SMI: payload.SMI}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	h, err := lab.Boot(ctx, opts)
	ts.Check(err)
	s.host = h
}

// parseModel reads NAME[:SHARDS[:BYTES]].
func parseModel(text string) (testhost.Model, error) {
	model := testhost.Model{Shards: 2, Bytes: 4 << 20}
	words := strings.Split(text, ":")
	model.Name = words[0]
	var err error
	if len(words) > 1 {
		if model.Shards, err = strconv.Atoi(words[1]); err != nil {
			return model, err
		}
	}
	if len(words) > 2 {
		model.Bytes, err = strconv.ParseInt(words[2], 10, 64)
	}
	return model, err
}

// host [-exit N] [-stdin FILE] [-timeout D] COMMAND [ARG]...
func cmdHost(ts *testscript.TestScript, neg bool, args []string) {
	flags := flag.NewFlagSet("host", flag.ContinueOnError)
	want := flags.Int("exit", 0, "")
	stdin := flags.String("stdin", "", "")
	limit := flags.Duration("timeout", commandLimit, "")
	argv := parse(ts, flags, args, 1)
	var in io.Reader
	if *stdin != "" {
		in = strings.NewReader(ts.ReadFile(*stdin))
	}
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	code, err := of(ts).host.RunIO(ctx, testhost.Streams{In: in, Out: ts.Stdout(), Err: ts.Stderr()}, argv...)
	switch {
	case err != nil:
		ts.Fatalf("%v", err)
	case neg && code == 0:
		ts.Fatalf("unexpected success")
	case !neg && code != *want:
		ts.Fatalf("exit status %d, want %d", code, *want)
	}
}

// hostfile [-mode 0644] [-owner USER[:GROUP]] PATH FILE
func cmdHostFile(ts *testscript.TestScript, neg bool, args []string) {
	notNegated(ts, neg, "hostfile")
	flags := flag.NewFlagSet("hostfile", flag.ContinueOnError)
	mode := flags.String("mode", "0644", "")
	owner := flags.String("owner", "", "")
	words := parse(ts, flags, args, 2)
	bits, err := strconv.ParseUint(*mode, 8, 32)
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	h := of(ts).host
	data, err := os.ReadFile(ts.MkAbs(words[1]))
	ts.Check(err)
	ts.Check(h.WriteFile(ctx, words[0], data, uint32(bits)))
	if *owner != "" {
		_, err := h.Check(ctx, "chown", *owner, words[0])
		ts.Check(err)
	}
}

// reboot: systemctl reboot, and multi-user.target reached again
func cmdReboot(ts *testscript.TestScript, neg bool, args []string) {
	notNegated(ts, neg, "reboot")
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	ts.Check(of(ts).host.Reboot(ctx))
}

// powercut: every process killed at once, and booted from the same disk
func cmdPowerCut(ts *testscript.TestScript, neg bool, args []string) {
	notNegated(ts, neg, "powercut")
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	ts.Check(of(ts).host.PowerCut(ctx))
}

// wait-for [-timeout 30s] COMMAND [ARG]...
//
// It polls: what a story waits for may be anything that a command can see.
func cmdWaitFor(ts *testscript.TestScript, neg bool, args []string) {
	flags := flag.NewFlagSet("wait-for", flag.ContinueOnError)
	limit := flags.Duration("timeout", 30*time.Second, "")
	argv := parse(ts, flags, args, 1)
	ctx, cancel := context.WithTimeoutCause(context.Background(), *limit, fmt.Errorf("waited %v", *limit))
	defer cancel()
	h := of(ts).host
	var last testhost.Result
	for {
		result, err := h.Run(ctx, argv...)
		if err == nil {
			last = result
		}
		if ctx.Err() != nil {
			ts.Fatalf("%v; last exit status %d\n%s%s", context.Cause(ctx), last.Code, last.Stdout, last.Stderr)
		}
		ts.Check(err)
		if (result.Code == 0) != neg {
			fmt.Fprint(ts.Stdout(), result.Stdout)
			fmt.Fprint(ts.Stderr(), result.Stderr)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
