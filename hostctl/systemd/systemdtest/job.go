package systemdtest

import (
	"fmt"
	"time"

	"github.com/godbus/dbus/v5"
)

// job is an entry of the queue. A unit has at most one.
type job struct {
	id      uint32
	unit    string
	kind    string // start or stop
	outcome Outcome
	timer   *time.Timer // nil if it hangs
}

func (j *job) path() dbus.ObjectPath {
	return managerPath + dbus.ObjectPath(fmt.Sprintf("/job/%d", j.id))
}

// jobProperty is a unit's property Job, of type (uo).
type jobProperty struct {
	ID   uint32
	Path dbus.ObjectPath
}

func (s *Server) jobProperty(unit string) jobProperty {
	if j := s.jobOf(unit); j != nil {
		return jobProperty{j.id, j.path()}
	}
	return jobProperty{0, "/"}
}

// jobOf is called with mu held.
func (s *Server) jobOf(unit string) *job {
	for _, j := range s.jobs {
		if j.unit == unit {
			return j
		}
	}
	return nil
}

// FinishJobs ends all jobs of a unit that hang or still run, as their outcome says.
func (s *Server) FinishJobs(unit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobOf(unit); j != nil {
		s.finish(j)
	}
}

// queue queues a job in mode "replace": one of the same kind is joined, another is cancelled. Called with mu held.
func (s *Server) queue(unit, kind string, script *[]Outcome) *job {
	if j := s.jobOf(unit); j != nil {
		if j.kind == kind {
			return j
		}
		j.outcome = Outcome{Result: "canceled", Lost: j.outcome.Lost, After: func(*Unit) {}}
		s.finish(j)
	}
	var outcome Outcome
	if len(*script) > 0 {
		outcome = (*script)[0]
	}
	if len(*script) > 1 {
		*script = (*script)[1:]
	}
	s.lastJob++
	j := &job{id: s.lastJob, unit: unit, kind: kind, outcome: outcome}
	s.jobs[j.path()] = j
	during := outcome.During
	if during == nil {
		during = map[string]func(*Unit){"start": starting, "stop": stopping}[kind]
	}
	s.change(unit, during, !outcome.Lost)
	s.emit(managerPath, managerIface+".JobNew", j.id, j.path(), unit)
	if !outcome.Hang {
		// At least a moment later: systemd, too, answers the call first.
		j.timer = time.AfterFunc(max(outcome.Takes, time.Millisecond), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.finish(j)
		})
	}
	return j
}

// finish ends a job. Called with mu held.
func (s *Server) finish(j *job) {
	if s.jobs[j.path()] != j {
		return // ended meanwhile
	}
	if j.timer != nil {
		j.timer.Stop()
	}
	delete(s.jobs, j.path())
	result := j.outcome.Result
	if result == "" {
		result = "done"
	}
	if _, ok := s.units[j.unit]; ok {
		s.change(j.unit, s.after(j, result), !j.outcome.Lost)
	}
	if !j.outcome.Lost {
		s.emit(managerPath, managerIface+".JobRemoved", j.id, j.path(), j.unit, result)
	}
}

// after is how a unit looks when a job has ended.
func (s *Server) after(j *job, result string) func(*Unit) {
	switch {
	case j.outcome.After != nil:
		return j.outcome.After
	case j.kind == "start" && result == "done":
		s.invocations++
		id := fmt.Sprintf("%032x", s.invocations)
		return func(u *Unit) {
			if u.Active == "active" {
				return
			}
			u.Active, u.Sub, u.Result, u.InvocationID = "active", "running", "success", id
			u.ControlGroup = "/system.slice/" + u.Name
			u.ExecMainCode, u.ExecMainStatus, u.NRestarts = 0, 0, 0
		}
	case j.kind == "start" && result == "failed":
		return func(u *Unit) {
			u.Active, u.Sub, u.Result, u.MainPID, u.ControlGroup = "failed", "failed", "exit-code", 0, ""
		}
	case j.kind == "stop" && result == "done":
		return func(u *Unit) {
			if u.Active != "failed" {
				u.Active, u.Sub, u.MainPID, u.ControlGroup = "inactive", "dead", 0, ""
			}
		}
	}
	return func(*Unit) {}
}

func starting(u *Unit) {
	if u.Active != "active" {
		u.Active, u.Sub = "activating", "start"
	}
}

func stopping(u *Unit) {
	if u.Active != "inactive" && u.Active != "failed" {
		u.Active, u.Sub = "deactivating", "stop-sigterm"
	}
}
