package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"time"
)

// run serves until something ends it, and returns how.
func (s *server) run() ending {
	time.Sleep(s.set.scaled(s.set.ListenDelay))
	if s.set.NeverListen {
		return s.standStill()
	}
	ln, err := s.sock.listen()
	if err != nil {
		s.log.plain(s.speaker("api"), mainTraceback(err.Error()))
		return ending{code: 1}
	}
	s.api = newAPI(s)
	// Idle connections are closed after 5 s, as by uvicorn.
	web := &http.Server{Handler: s.api.handler(), IdleTimeout: 5 * time.Second, ErrorLog: nil}
	failed := make(chan error, 1)
	go func() {
		if s.opt.certfile != "" {
			failed <- web.ServeTLS(ln, s.opt.certfile, s.opt.keyfile)
		} else {
			failed <- web.Serve(ln)
		}
	}()
	for {
		select {
		case err := <-failed:
			s.log.plain(s.speaker("api"), mainTraceback(err.Error()))
			return ending{code: 1}
		case <-s.signals:
			return s.stop(web)
		case <-s.procs.died():
			if end := s.engineDied(web); end != nil {
				return *end
			}
			<-s.signals
			return s.shutDown(web, ending{})
		}
	}
}

// standStill is the server that never listens.
func (s *server) standStill() ending {
	select {
	case <-s.signals:
	case <-s.procs.died():
	}
	return ending{}
}

// stop is a SIGTERM while serving. Without a time to drain the engine is killed at once; what that means for open
// streams differs by version. With one, they have that long to end.
func (s *server) stop(web *http.Server) ending {
	say := func(where, text string) { s.log.line(s.speaker("api"), infoLevel, where, "[shutdown] "+text) }
	mode := "abort"
	if s.opt.drain > 0 {
		mode = "drain"
	}
	say("launcher.py:254", "API server: shutdown triggered")
	say("launcher.py:270", fmt.Sprintf("API server: stopping engine client mode=%s timeout=%ds", mode, s.opt.drain))
	say("core_client.py:770", fmt.Sprintf("MPClient: start timeout=%ds", s.opt.drain))
	if s.opt.drain > 0 {
		s.drain(web)
	}
	time.Sleep(s.set.scaled(s.set.StopTime) / 2)
	say("utils.py:628", "Process manager: send sigterm to process EngineCore")
	s.engine.enter(stopped)
	if s.opt.drain == 0 && s.rel.stopAborts {
		s.engine.finishAll("abort")
	}
	s.procs.kill()
	say("core_client.py:774", "MPClient: engine manager stopped")
	say("core_client.py:777", "MPClient: complete")
	say("launcher.py:304", "API server: shutting down FastAPI HTTP server")
	time.Sleep(s.set.scaled(s.set.StopTime) / 2)
	return s.shutDown(web, ending{})
}

// drain waits until nothing is in flight, for as long as the command line allows. Meanwhile older versions have closed
// the port, newer ones answer: healthy, and 500 to new requests.
func (s *server) drain(web *http.Server) {
	s.engine.enter(draining)
	s.log.line(s.procs.engineSpeaker(), infoLevel, "core.py:1353",
		fmt.Sprintf("[shutdown] EngineCore: draining in-flight requests count=%d timeout=%ds", s.engine.inFlight(), s.opt.drain))
	if s.rel.drainRefuses {
		go web.Shutdown(context.Background())
	}
	select {
	case <-s.engine.empty():
	case <-time.After(time.Duration(s.opt.drain) * time.Second):
	case <-s.procs.died():
		s.engine.finishAll("error")
	}
}

// shutDown closes the port and waits for the open answers, without a limit: a stream that nobody feeds any more keeps the
// server until its client gives up. Ctrl-C is the way out.
func (s *server) shutDown(web *http.Server, end ending) ending {
	api := s.speaker("api")
	s.log.plain(api, "INFO:     Shutting down")
	closed := make(chan struct{})
	go func() {
		web.Shutdown(context.Background())
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(100 * time.Millisecond):
		s.log.plain(api, "INFO:     Waiting for connections to close. (CTRL+C to force quit)")
		for waiting := true; waiting; {
			select {
			case <-closed:
				waiting = false
			case sig := <-s.signals:
				waiting = sig != syscall.SIGINT
			}
		}
	}
	s.log.plain(api, "INFO:     Waiting for application shutdown.")
	s.log.plain(api, "INFO:     Application shutdown complete.")
	s.log.plain(api, fmt.Sprintf("INFO:     Finished server process [%d]", os.Getpid()))
	return end
}

// engineDied is the engine's death while serving: health says so at once, streams get an error, and after the watchdog's
// time the process ends as if all were well. It returns nil when the process is to stay.
func (s *server) engineDied(web *http.Server) *ending {
	api := s.speaker("api")
	s.engine.enter(dead)
	s.engine.finishAll("error")
	s.log.line(api, warningLevel, "core_client.py:817", "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup")
	s.log.line(api, errorLevel, "async_llm.py:906", "AsyncLLM output_handler failed.\n"+
		traceback([]string{"v1/engine/async_llm.py output_handler"}, "vllm.v1.engine.exceptions.EngineDeadError: "+engineDead))
	if s.set.EngineDeath == "stay" {
		return nil
	}
	select {
	case <-time.After(s.set.scaled(s.set.WatchDog)):
	case <-s.signals:
	}
	end := s.shutDown(web, ending{})
	if s.set.EngineDeath == "exit1" {
		end.code = 1
	}
	return &end
}
