package hostctl

import (
	"bytes"
	"errors"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// strangerUID stands for a dynamic user that does not exist at the moment. It is one of those that systemd gives to
// dynamic users (systemd.exec(5), DynamicUser=), so that no account has it, and the last one, which is rarely taken.
const strangerUID = 65519

// credentials are those that a unit's processes have as far as files go: the settings are those of unitgen.FileView. ok is
// false when they cannot be had without systemd: the user is not in /etc/passwd, or the unit sees other files at a path
// than we do.
func credentials(settings []string, path string) (c *syscall.Credential, ok bool) {
	c = &syscall.Credential{Uid: strangerUID, Gid: strangerUID}
	name, dynamic, primary := "", false, ""
	for _, setting := range settings {
		key, value, _ := strings.Cut(setting, "=")
		switch key {
		case "User":
			name = value
		case "DynamicUser":
			dynamic = value == "yes"
		case "Group":
			primary = value
		case "SupplementaryGroups":
			for _, group := range strings.Fields(value) {
				gid, err := groupID(group)
				if err != nil {
					return nil, false
				}
				c.Groups = append(c.Groups, gid)
			}
		case "ProtectHome":
			if value != "no" && value != "read-only" && below(path, "/home", "/root", "/run/user") {
				return nil, false
			}
		case "PrivateTmp":
			if value != "no" && below(path, "/tmp", "/var/tmp") {
				return nil, false
			}
		}
	}
	if name != "" {
		account, err := user.Lookup(name)
		switch {
		case err == nil:
			uid, err1 := strconv.ParseUint(account.Uid, 10, 32)
			gid, err2 := strconv.ParseUint(account.Gid, 10, 32)
			if errors.Join(err1, err2) != nil {
				return nil, false
			}
			c.Uid, c.Gid = uint32(uid), uint32(gid)
		case !dynamic:
			return nil, false // of a directory service, which only systemd asks
		}
	}
	if primary != "" {
		gid, err := groupID(primary)
		if err != nil {
			return nil, false
		}
		c.Gid = gid
	}
	return c, c.Uid != 0
}

func groupID(name string) (uint32, error) {
	group, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	gid, err := strconv.ParseUint(group.Gid, 10, 32)
	return uint32(gid), err
}

func below(path string, dirs ...string) bool {
	for _, dir := range dirs {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}

// mountedApart reports whether a unit may see other files than we do at a path, for a reason that is not in its text.
func mountedApart(unit []byte) bool {
	for line := range bytes.Lines(unit) {
		key, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte("="))
		switch string(key) {
		case "RootDirectory", "RootImage", "BindPaths", "BindReadOnlyPaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths", "JoinsNamespaceOf":
			return true
		}
	}
	return false
}

// isRoot reports whether this process may take on another user.
func isRoot() bool { return os.Geteuid() == 0 }
