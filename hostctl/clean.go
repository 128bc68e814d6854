package hostctl

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"vllmhost/hostctl/shm"
	"vllmhost/hostctl/systemd"
	"vllmhost/unitgen"
)

// Clean returns the files that engines may have left in the host's /dev/shm, with what becomes of each and why. It removes
// the stale ones when told to, and then returns them as removed, too.
func (h *Host) Clean(ctx context.Context, remove bool) (found, removed []shm.File, err error) {
	if remove {
		if err := h.mustBeRoot("clean"); err != nil {
			return nil, nil, err
		}
	}
	owners, err := h.shmOwners(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	if found, err = h.shm().Scan(owners); err != nil || !remove {
		return found, nil, err
	}
	removed, err = h.shm().Remove(found)
	return found, removed, err
}

// CleanBefore removes what the user of an instance left in the host's /dev/shm, before that instance starts, and says in a
// few words what it removed. An instance with a /dev/shm of its own leaves nothing.
func (h *Host) CleanBefore(ctx context.Context, s unitgen.Section) (string, error) {
	if s.Shm != "host" {
		return "", nil
	}
	uid, ok := uidOf(s.User)
	if !ok {
		return "", nil // a dynamic user, that systemd cleans up after
	}
	owners, err := h.shmOwners(ctx, s.Instance)
	if err != nil {
		return "", err
	}
	found, err := h.shm().Scan(map[int]shm.Owner{uid: owners[uid]})
	if err != nil {
		return "", err
	}
	removed, err := h.shm().Remove(found)
	if err != nil || len(removed) == 0 {
		return "", err
	}
	var bytes int64
	for _, f := range removed {
		bytes += f.Bytes
	}
	noun := "files"
	if len(removed) == 1 {
		noun = "file"
	}
	return fmt.Sprintf("%d stale %s of user %s removed from /dev/shm, %d MB", len(removed), noun, s.User, bytes/1e6), nil
}

func (h *Host) shm() shm.Dir { return shm.Dir{Path: h.root + "/dev/shm"} }

// shmOwners are the users of all instances, by uid. The instance except, which is about to start, does not count as
// running.
func (h *Host) shmOwners(ctx context.Context, except string) (map[int]shm.Owner, error) {
	files, err := h.unitFiles()
	if err != nil {
		return nil, err
	}
	owners := map[int]shm.Owner{}
	for name, f := range files {
		uid, known := uidOf(f.section.User)
		if !f.ours || !known {
			continue
		}
		o := owners[uid]
		o.User = f.section.User
		if o.Unit == "" || f.section.Shm == "host" {
			o.Unit = name
		}
		if f.section.Shm == "host" && f.section.Instance != except && o.Busy == "" {
			status, err := h.systemd.State(ctx, name)
			if err != nil {
				return nil, err
			}
			if busy(status) {
				o.Busy = name
			}
		}
		owners[uid] = o
	}
	return owners, nil
}

// busy reports whether a unit's processes may be there: also while it starts, stops, or waits to be started again.
func busy(u systemd.UnitStatus) bool { return u.Active != "inactive" && u.Active != "failed" }

// uidOf finds a user. One with a number below 1 is root, whose files no engine makes.
func uidOf(name string) (uid int, ok bool) {
	if name == "" {
		return 0, false
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, false
	}
	uid, err = strconv.Atoi(u.Uid)
	return uid, err == nil && uid > 0
}

// IsRoot reports whether this process may look into all others.
func IsRoot() bool { return os.Geteuid() == 0 }
