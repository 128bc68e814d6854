package swap

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// RecordSchema names the format of a record's lines. Fields are only ever added.
const RecordSchema = "vllmhost/record/v1"

// Entry is one line of a record. The first line has Op, ID, Boot and what was asked for, that of a step's end what became
// of it, and the last one the outcome.
type Entry struct {
	Schema string    `json:"schema,omitempty"` // first line only
	Time   time.Time `json:"time"`             // by the clock of the host, which may be set back
	Op     string    `json:"op,omitempty"`     // first line only: apply, swap, rollback
	ID     string    `json:"id,omitempty"`     // first line only
	// Boot is the kernel's id of the boot that the operation began in, and of each in which it was taken up again.
	Boot    string   `json:"boot,omitempty"`
	Request *Request `json:"request,omitempty"` // first line of a swap or rollback
	// Units holds the text of each unit as it was before an apply; an empty text means there was no such file.
	Units map[string]string `json:"units,omitempty"`

	Step   string `json:"step,omitempty"`
	State  State  `json:"state"`
	Detail string `json:"detail,omitempty"`
	Error  string `json:"error,omitempty"`
	Plan   *Plan  `json:"plan,omitempty"` // of the step "plan"
	// Result is how the operation ended; last line only.
	Result *Result `json:"result,omitempty"`
}

// Request is what somebody asked for.
type Request struct {
	Names     []string `json:"names"`                // the instances to serve; empty for a rollback
	Skip      []string `json:"skip,omitempty"`       // checks to pass over
	Stay      bool     `json:"stay,omitempty"`       // do not roll back when a step fails
	KeepEdits bool     `json:"keep_edits,omitempty"` // start units that were edited by hand as they are
	Back      string   `json:"back,omitempty"`       // a rollback: the swap whose old side is to serve again
	User      string   `json:"user"`                 // who asked
	// WaitLock is how long to wait for another operation to end.
	WaitLock time.Duration `json:"wait_lock_ns,omitempty"`
}

// State says how far a step or a whole operation is.
type State string

// The states of steps (doing, done, failed, undoing, undone), of operations (begun, resumed), and the outcomes.
const (
	Begun          State = "begun"
	Resumed        State = "resumed" // taken up again after its process or the host was killed
	Doing          State = "doing"
	Done           State = "done"
	Failed         State = "failed"
	Undoing        State = "undoing"
	Undone         State = "undone"
	Applied        State = "applied"
	Swapped        State = "swapped"
	Refused        State = "refused"
	RolledBack     State = "rolled back"
	RollbackFailed State = "rollback failed"
	Stayed         State = "stayed"      // failed, and told not to roll back
	Interrupted    State = "interrupted" // of an apply: killed halfway, to be done again
)

// Closed reports whether a state is an outcome: nothing follows it.
func (s State) Closed() bool {
	switch s {
	case Applied, Swapped, Refused, RolledBack, RollbackFailed, Stayed, Interrupted:
		return true
	}
	return false
}

// Record is the journal of one operation: JSON lines, each on disk before the step it speaks of begins. A Record is
// not safe for concurrent use.
type Record struct {
	ID   string
	file *os.File
	err  error // the first write that failed; later ones are not tried
}

// room is how many bytes are set aside for a record: many times what one with long errors needs. A disk that fills up
// in the middle of a swap must not keep it from telling where it is.
const room = 128 << 10

// NewID returns a short random name for an operation: four characters that are easy to read out and to type.
func NewID() string {
	const letters = "23456789abcdefghjkmnpqrstuvwxyz"
	b := make([]byte, 4)
	rand.Read(b) // never fails (crypto/rand)
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return string(b)
}

// Create begins the record of an operation in dir, as DIR/ID.jsonl, with first as its first line. It sets room aside
// for what follows.
func Create(dir string, first Entry) (*Record, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot create the record: %w", err)
	}
	// It gets its name with its first line on disk, so that a record without one does not come to be.
	path := recordPath(dir, first.ID)
	unfinished := filepath.Join(dir, "."+first.ID+".new")
	f, err := os.OpenFile(unfinished, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot create the record: %w", err)
	}
	defer os.Remove(unfinished)
	r := &Record{ID: first.ID, file: f}
	first.Schema, first.State, first.Boot = RecordSchema, Begun, BootID()
	err = setAside(f)
	if err == nil {
		err = r.Write(first)
	}
	if err == nil {
		err = os.Link(unfinished, path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot create the record %q: %w", path, err)
	}
	return r, nil
}

// setAside takes disk space for a record. A file system that cannot do so (EOPNOTSUPP) is used without.
func setAside(f *os.File) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, room)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("cannot set aside %d KiB for the record %q: %v", room>>10, f.Name(), err)
	}
	return nil
}

// Reopen continues the record of an operation that was interrupted. A torn last line is cut off.
func Reopen(dir, id string) (*Record, []Entry, error) {
	entries, whole, err := read(dir, id)
	if err != nil {
		return nil, nil, err
	}
	path := recordPath(dir, id)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot open the record: %w", err)
	}
	if err := f.Truncate(whole); err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("cannot cut the record %q: %v", path, err)
	}
	_ = setAside(f) // truncating may have given the room away; without it the swap goes back when the disk is full
	return &Record{ID: id, file: f}, entries, nil
}

// BootID is the kernel's name for the time since it was started.
func BootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// Write appends a line and waits until it is on disk. After a failure it returns that failure again.
func (r *Record) Write(e Entry) error {
	if r.err != nil {
		return r.err
	}
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = r.file.Sync()
	}
	if err != nil {
		r.err = fmt.Errorf("cannot write the record %q: %w", r.file.Name(), err)
	}
	return r.err
}

// Close ends the record.
func (r *Record) Close() { r.file.Close() }

// NotRecordError says that a file that lies among the records is none of ours.
type NotRecordError struct{ Path, Why string }

func (e *NotRecordError) Error() string {
	return fmt.Sprintf("cannot use the record %q: %s", e.Path, e.Why)
}

// Read returns the lines of an operation's record. A torn last line, from a crash while it was written, is left out.
// Whatever root alone did not write, or does not begin as a record of that operation, is a *NotRecordError.
func Read(dir, id string) ([]Entry, error) {
	entries, _, err := read(dir, id)
	return entries, err
}

// maxRecord bounds what is read of a record, in bytes: unit texts are the largest part of one.
const maxRecord = 64 << 20

// read also returns how many bytes the whole lines have.
func read(dir, id string) (entries []Entry, whole int64, err error) {
	path := recordPath(dir, id)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, 0, &NotRecordError{path, "it is a symbolic link"}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read the record: %w", err)
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return nil, 0, fmt.Errorf("cannot read the record %q: %v", path, err)
	}
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, 0, &NotRecordError{path, "it is no regular file"}
	case int(stat.Uid) != os.Geteuid() && stat.Uid != 0 || stat.Mode&0o022 != 0:
		return nil, 0, &NotRecordError{path, "others than root may have written it"}
	case stat.Size > maxRecord:
		return nil, 0, &NotRecordError{path, "it is too large"}
	}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // what is left has no end: it is torn
		}
		if err != nil {
			return nil, 0, fmt.Errorf("cannot read the record %q: %v", path, err)
		}
		var e Entry
		if json.Unmarshal(line, &e) != nil {
			break
		}
		entries = append(entries, e)
		whole += int64(len(line))
	}
	if len(entries) == 0 || entries[0].Schema != RecordSchema || entries[0].ID != id {
		return nil, 0, &NotRecordError{path, "it does not begin as one"}
	}
	return entries, whole, nil
}

// Closed reports whether an operation is over, by the last line of its record alone: that is cheap, however long the
// record is.
func Closed(dir, id string) (bool, error) {
	f, err := os.OpenFile(recordPath(dir, id), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false, fmt.Errorf("cannot read the record: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	tail := make([]byte, min(info.Size(), 64<<10))
	if _, err := f.ReadAt(tail, info.Size()-int64(len(tail))); err != nil {
		return false, fmt.Errorf("cannot read the record: %w", err)
	}
	tail, whole := bytes.CutSuffix(tail, []byte("\n"))
	var e Entry
	if start := bytes.LastIndexByte(tail, '\n'); !whole || json.Unmarshal(tail[start+1:], &e) != nil {
		return false, nil
	}
	return e.State.Closed(), nil
}

func recordPath(dir, id string) string { return filepath.Join(dir, id+recordSuffix) }

const recordSuffix = ".jsonl"

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot sync %q: %v", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("cannot sync %q: %v", dir, err)
	}
	return nil
}
