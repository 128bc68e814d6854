// Package hostctl makes the host what the profile says: it applies profiles, swaps instances and tells how things are.
//
// It wires the packages below it to the paths and the bus of this host. Each of them owns one resource and decides on
// it; hostctl decides on their order. Nothing is printed here.
package hostctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"vllmhost/hostctl/gate"
	"vllmhost/hostctl/gpu"
	"vllmhost/hostctl/swap"
	"vllmhost/hostctl/systemd"
	"vllmhost/hostctl/units"
	"vllmhost/unitgen"
)

// Options say where a host's files are and how to reach its systemd.
type Options struct {
	// Root is put before every path, for tests; "" is the running system.
	Root string
	// BusAddress is a D-Bus address; "" is the system's own bus.
	BusAddress string
	// Logger gets what the journal should have; nil drops it.
	Logger *slog.Logger
}

// Host is this host.
type Host struct {
	root     string
	systemd  *systemd.Client
	units    units.Dir // what systemd has
	pending  units.Dir // what a swap would install
	records  string    // directory of the records of operations
	lockPath string
	log      *slog.Logger
}

// RunDir is for what a reboot may forget: the lock, and the claims of starting instances.
const RunDir = "/run/vllmhost"

const (
	unitDir    = "/etc/systemd/system"
	pendingDir = "/var/lib/vllmhost/pending"
	recordDir  = "/var/lib/vllmhost/operations"
	bootTarget = "multi-user.target"
)

// Open connects to systemd. Close must be called.
func Open(ctx context.Context, o Options) (*Host, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := systemd.Open(ctx, systemd.Options{Address: o.BusAddress, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return &Host{
		root:     o.Root,
		systemd:  client,
		units:    units.Dir{Path: filepath.Join(o.Root, unitDir)},
		pending:  units.Dir{Path: filepath.Join(o.Root, pendingDir)},
		records:  filepath.Join(o.Root, recordDir),
		lockPath: filepath.Join(o.Root, RunDir, "lock"),
		log:      o.Logger,
	}, nil
}

// Close ends the connection to systemd.
func (h *Host) Close() { h.systemd.Close() }

// Systemd is the host's connection to systemd.
func (h *Host) Systemd() *systemd.Client { return h.systemd }

// Claims are those of this host.
func (h *Host) Claims() gate.Claims { return gate.Claims{Dir: filepath.Dir(h.lockPath)} }

// GPUs are those of this host.
func (h *Host) GPUs() gate.GPUs { return gpu.System{Root: h.root} }

// unitFile is a unit of the vllm- name space as it lies on disk.
type unitFile struct {
	name    string
	text    []byte
	section unitgen.Section
	exists  bool // not merely pending
	ours    bool // has an [X-Vllmhost] section that can be read
	edited  bool // ours, and changed by hand since
	pending []byte
}

// unitFiles reads all vllm-*.service files with their pending definitions, and pending ones without a unit file.
func (h *Host) unitFiles() (map[string]unitFile, error) {
	files := map[string]unitFile{}
	names, err := h.units.List()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := h.units.Read(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, units.ErrNotRegular) {
			return nil, err
		}
		f := unitFile{name: name, text: text, exists: true}
		section, err := unitgen.ParseSection(text)
		f.section, f.ours = section, err == nil
		f.edited = f.ours && unitgen.Edited(text)
		files[name] = f
	}
	waiting, err := h.pending.List()
	if err != nil {
		return nil, err
	}
	for _, name := range waiting {
		f := files[name]
		f.name = name
		if f.pending, err = h.pending.Read(name); err != nil {
			return nil, err
		}
		if f.exists && bytes.Equal(f.pending, f.text) {
			f.pending = nil // left by a swap that was killed at its very end
		}
		if !f.exists {
			f.section, err = unitgen.ParseSection(f.pending)
			f.ours = err == nil
		}
		files[name] = f
	}
	return files, nil
}

// InstalledSection reads what the installed unit of an instance says of it, below root. It needs no privileges and no
// systemd.
func InstalledSection(root, instance string) (unitgen.Section, error) {
	text, err := units.Dir{Path: filepath.Join(root, unitDir)}.Read(unitgen.UnitName(instance))
	if err != nil {
		return unitgen.Section{}, err
	}
	return unitgen.ParseSection(text)
}

// record begins the record of an operation.
func (h *Host) record(first swap.Entry) (*swap.Record, error) { return swap.Create(h.records, first) }

// NotRootError says that an operation needs root.
type NotRootError struct{ Op string }

func (e *NotRootError) Error() string { return fmt.Sprintf("cannot %s: only root may", e.Op) }

// mustBeRoot refuses an operation on the running system to others than root, before it fails halfway.
func (h *Host) mustBeRoot(op string) error {
	if h.root == "" && os.Geteuid() != 0 {
		return &NotRootError{op}
	}
	return nil
}
