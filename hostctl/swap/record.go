package swap

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// RecordSchema names the format of a record's lines. Fields are only ever added.
const RecordSchema = "vllmhost/record/v1"

// Entry is one line of a record. The first line has Op, Summary and Units; the others tell what became of a step.
type Entry struct {
	Schema  string    `json:"schema,omitempty"` // first line only
	Time    time.Time `json:"time"`
	Op      string    `json:"op,omitempty"`      // apply, swap
	ID      string    `json:"id,omitempty"`      // first line only
	Summary string    `json:"summary,omitempty"` // "minimax -> kimi-int4"
	Step    string    `json:"step,omitempty"`
	State   State     `json:"state"`
	Detail  string    `json:"detail,omitempty"`
	Error   string    `json:"error,omitempty"`
	// Units holds the text of each unit as it was before the operation; an empty text means there was no such file.
	Units map[string]string `json:"units,omitempty"`
	// Old and Displaced are the instances that ran, and those that started at boot, before a swap; New is what it starts.
	Old       []string `json:"old,omitempty"`
	Displaced []string `json:"displaced,omitempty"`
	New       []string `json:"new,omitempty"`
}

// State says how far a step or a whole operation is.
type State string

// The states of steps (doing, done, failed, undoing, undone) and of operations (begun, and the outcomes).
const (
	Begun          State = "begun"
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
)

// Record is the journal of one operation: JSON lines, each on disk before the step it speaks of begins. A Record is
// not safe for concurrent use.
type Record struct {
	ID   string
	file *os.File
	err  error // the first write that failed; later ones are not tried
}

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

// Create begins the record of an operation in dir, as DIR/ID.jsonl, with first as its first line.
func Create(dir string, first Entry) (*Record, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot create the record: %w", err)
	}
	path := filepath.Join(dir, first.ID+".jsonl")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot create the record: %w", err)
	}
	r := &Record{ID: first.ID, file: f}
	first.Schema, first.State = RecordSchema, Begun
	if err := r.Write(first); err != nil {
		f.Close()
		os.Remove(path)
		return nil, err
	}
	if err := syncDir(dir); err != nil {
		r.err = err
		return nil, err
	}
	return r, nil
}

// Write appends a line and waits until it is on disk. After a failure it returns that failure again.
func (r *Record) Write(e Entry) error {
	if r.err != nil {
		return r.err
	}
	e.Time = time.Now().UTC()
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

// Read returns the lines of a record. A torn last line, from a crash while it was written, is left out.
func Read(path string) ([]Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the record: %w", err)
	}
	defer f.Close()
	var entries []Entry
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20) // the first line holds whole units
	for lines.Scan() {
		var e Entry
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			break
		}
		entries = append(entries, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot read the record %q: %v", path, err)
	}
	return entries, nil
}

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
