package main

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

const longStream = `{"prompt":"Once upon a time","max_tokens":400,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`

func TestStopIdle(t *testing.T) {
	t.Parallel()
	s := ready(t, nil)
	if got := len(s.files("shm", `^psm_[0-9a-f]{8}$`)); got != 2 {
		t.Errorf("%d segments while serving, want 2", got)
	}
	if got := len(s.files("shm", `^sem\.mp-[a-z0-9_]{8}$`)); got != 1 {
		t.Errorf("%d semaphores while serving, want 1", got)
	}
	s.signal(syscall.SIGTERM)
	if got := s.status(); got != 0 {
		t.Errorf("status %d, want 0", got)
	}
	if left := s.files("shm", ""); len(left) > 0 {
		t.Errorf("left in shm: %v", left)
	}
	if got := len(s.files("t", `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)); got != 7 {
		t.Errorf("%d sockets stay in tmp, want 7", got)
	}
	s.saw("[shutdown] API server: shutdown triggered")
	s.saw("Application shutdown complete.")
}

func TestTermBeforeBinding(t *testing.T) {
	t.Parallel()
	s := start(t, []string{"VLLMSIM_IMPORT_TIME=1m"})
	waitForComm(t, s.cmd.Process.Pid, "vllm")
	s.signal(syscall.SIGTERM)
	if got := s.status(); got != -int(syscall.SIGTERM) {
		t.Errorf("status %d, want death by SIGTERM", got)
	}
}

// The first SIGTERM while loading is swallowed, and the server comes up.
func TestFirstTermIsSwallowed(t *testing.T) {
	t.Parallel()
	s := start(t, []string{"VLLMSIM_LOAD_TIME=500ms"})
	s.saw("  0% Completed")
	s.signal(syscall.SIGTERM)
	s.untilReady()
	if status, _ := s.call("GET", "/health", ""); status != 200 {
		t.Errorf("health %d", status)
	}
	s.signal(syscall.SIGTERM)
	if got := s.status(); got != 0 {
		t.Errorf("status %d, want 0", got)
	}
}

func TestSecondTermEndsTheLoad(t *testing.T) {
	for version, want := range map[string]int{"0.32.0": -int(syscall.SIGINT), "0.25.1": 1} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := start(t, []string{"VLLMSIM_STUCK_AT=50", "VLLMSIM_VERSION=" + version})
			s.saw(" 50% Completed")
			s.signal(syscall.SIGTERM)
			time.Sleep(100 * time.Millisecond) // signals that arrive together are one
			if !s.running() {
				t.Fatal("the first SIGTERM was not swallowed")
			}
			s.signal(syscall.SIGTERM)
			if got := s.status(); got != want {
				t.Errorf("status %d, want %d", got, want)
			}
			s.saw("KeyboardInterrupt: terminated")
			if left := s.files("shm", ""); len(left) > 0 {
				t.Errorf("left in shm: %v", left)
			}
		})
	}
}

func TestDrain(t *testing.T) {
	for version, refuses := range map[string]bool{"0.32.0": false, "0.25.1": true} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := ready(t, []string{"VLLMSIM_VERSION=" + version}, "serve", "--shutdown-timeout", "15")
			st := s.stream("/v1/completions", longStream)
			st.next(t)
			s.signal(syscall.SIGTERM)
			s.saw("draining in-flight requests count=1 timeout=15s")
			if refuses {
				for !refused(s.port) {
					time.Sleep(time.Millisecond)
				}
			} else {
				if status, _ := s.call("GET", "/health", ""); status != 200 {
					t.Errorf("health during the drain: %d, want 200", status)
				}
				if status, body := s.call("POST", "/v1/completions", `{"prompt":"x"}`); status != 500 || !strings.Contains(body, "after shutdown") {
					t.Errorf("new request during the drain: %d %s, want 500", status, body)
				}
			}
			events := st.rest(t)
			if last := events[len(events)-1]; last != "[DONE]" {
				t.Errorf("last event %q", last)
			}
			if usage := events[len(events)-2]; !strings.Contains(usage, `"completion_tokens":400`) {
				t.Errorf("usage %s, want all 400 tokens", usage)
			}
			if got := s.status(); got != 0 {
				t.Errorf("status %d, want 0", got)
			}
		})
	}
}

// A stream that outlives the drain, or a stop without one: the engine is gone, and the server waits for its client.
func TestStopHangsOnOpenStreams(t *testing.T) {
	for _, timeout := range []string{"0", "1"} {
		t.Run("shutdown-timeout "+timeout, func(t *testing.T) {
			t.Parallel()
			s := ready(t, []string{"VLLMSIM_STEP_BASE=50ms"}, "serve", "--shutdown-timeout", timeout)
			st := s.stream("/v1/completions", longStream)
			st.next(t)
			s.signal(syscall.SIGTERM)
			s.saw("Waiting for connections to close. (CTRL+C to force quit)")
			waitGone(t, s.enginePID())
			for len(st.lines) > 0 {
				st.next(t)
			}
			time.Sleep(200 * time.Millisecond)
			select {
			case event, open := <-st.lines:
				t.Errorf("the stream went on: %q, open %v", event, open)
			default:
			}
			if !s.running() {
				t.Fatal("ended although a stream is open")
			}
			st.cancel()
			if got := s.status(); got != 0 {
				t.Errorf("status %d, want 0", got)
			}
		})
	}
}

func TestStopAbortsOpenStreams(t *testing.T) {
	t.Parallel()
	s := ready(t, []string{"VLLMSIM_VERSION=0.25.1", "VLLMSIM_STEP_BASE=20ms"})
	st := s.stream("/v1/completions", longStream)
	st.next(t)
	s.signal(syscall.SIGTERM)
	events := strings.Join(st.rest(t), "\n")
	for _, want := range []string{`"finish_reason":"abort"`, `"usage":{`, "[DONE]"} {
		if !strings.Contains(events, want) {
			t.Errorf("no %s in the stream", want)
		}
	}
	if got := s.status(); got != 0 {
		t.Errorf("status %d, want 0", got)
	}
}

func TestEngineDeath(t *testing.T) {
	for follows, want := range map[string]int{"exit0": 0, "exit1": 1, "stay": 0} {
		t.Run(follows, func(t *testing.T) {
			t.Parallel()
			s := ready(t, []string{"VLLMSIM_ENGINE_DEATH=" + follows, "VLLMSIM_STEP_BASE=20ms"})
			st := s.stream("/v1/completions", longStream)
			st.next(t)
			s.call("POST", "/__die", "")
			events := st.rest(t)
			if n := len(events); n < 2 || !strings.HasPrefix(events[n-2], `{"error": {`) || events[n-1] != "[DONE]" {
				t.Errorf("end of the stream: %q, want an error and [DONE]", events)
			}
			if status, _ := s.call("GET", "/health", ""); status != 503 {
				t.Errorf("health %d, want 503", status)
			}
			if follows == "stay" {
				time.Sleep(500 * time.Millisecond) // longer than the watchdog
				if !s.running() {
					t.Fatal("did not stay")
				}
				s.signal(syscall.SIGTERM)
			}
			if got := s.status(); got != want {
				t.Errorf("status %d, want %d", got, want)
			}
			if left := s.files("shm", ""); len(left) > 0 {
				t.Errorf("left in shm: %v", left)
			}
		})
	}
}

func TestLeakIgnoreAndOrphan(t *testing.T) {
	t.Run("leak", func(t *testing.T) {
		t.Parallel()
		s := ready(t, []string{"VLLMSIM_LEAK_SHM=1", "VLLMSIM_SHM_EXTRA=nccl-AbCdEf:33554432 vllm_offload_7.mmap:4096"})
		s.signal(syscall.SIGTERM)
		s.status()
		if got := len(s.files("shm", "")); got != 5 {
			t.Errorf("%d files stay in shm, want 5: %v", got, s.files("shm", ""))
		}
	})
	t.Run("ignore", func(t *testing.T) {
		t.Parallel()
		s := ready(t, []string{"VLLMSIM_IGNORE_TERM=true"})
		syscall.Kill(-s.cmd.Process.Pid, syscall.SIGTERM)
		time.Sleep(200 * time.Millisecond)
		if status, _ := s.call("GET", "/health", ""); status != 200 {
			t.Errorf("health %d after SIGTERM, want 200", status)
		}
	})
	t.Run("orphan", func(t *testing.T) {
		t.Parallel()
		s := ready(t, []string{"VLLMSIM_ORPHAN=1"})
		engine := s.enginePID()
		syscall.Kill(-s.cmd.Process.Pid, syscall.SIGTERM)
		if got := s.status(); got != 0 {
			t.Errorf("status %d, want 0", got)
		}
		if comm(engine) != "VLLM::EngineCor" {
			t.Error("the engine did not survive")
		}
	})
}
