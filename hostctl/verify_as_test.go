package hostctl

import (
	"os"
	"os/user"
	"slices"
	"strconv"
	"testing"
)

// What a unit's settings make of its processes, as far as files go; and when only systemd can tell.
func TestCredentials(t *testing.T) {
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("no user nobody")
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	for name, tt := range map[string]struct {
		settings []string
		path     string
		ok       bool
		uid, gid int
		groups   []uint32
	}{
		"a dynamic user": {[]string{"User=vllm-a", "DynamicUser=yes", "ProtectHome=yes"}, "/srv/m", true, strangerUID, strangerUID, nil},
		"an account":     {[]string{"User=nobody"}, "/srv/m", true, uid, gid, nil},
		"its groups": {[]string{"User=nobody", "Group=daemon", "SupplementaryGroups=bin sys"}, "/srv/m", true, uid, gidOf(t, "daemon"),
			[]uint32{uint32(gidOf(t, "bin")), uint32(gidOf(t, "sys"))}},
		"root":                                   {[]string{"User=root"}, "/srv/m", false, 0, 0, nil},
		"an account that is not in /etc/passwd":  {[]string{"User=no-such-user"}, "/srv/m", false, 0, 0, nil},
		"a group that is not in /etc/group":      {[]string{"User=nobody", "Group=no-such-group"}, "/srv/m", false, 0, 0, nil},
		"another group that is not":              {[]string{"User=nobody", "SupplementaryGroups=no-such-group"}, "/srv/m", false, 0, 0, nil},
		"a home that is hidden":                  {[]string{"User=nobody", "ProtectHome=yes"}, "/home/ann/m", false, 0, 0, nil},
		"a home that is an empty file system":    {[]string{"User=nobody", "ProtectHome=tmpfs"}, "/root", false, 0, 0, nil},
		"a home that is to read":                 {[]string{"User=nobody", "ProtectHome=read-only"}, "/home/ann/m", true, uid, gid, nil},
		"its own /tmp":                           {[]string{"User=nobody", "PrivateTmp=yes"}, "/var/tmp/m", false, 0, 0, nil},
		"not below a directory of such a prefix": {[]string{"User=nobody", "PrivateTmp=yes", "ProtectHome=yes"}, "/tmpfs/m", true, uid, gid, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, ok := credentials(tt.settings, tt.path)
			switch {
			case ok != tt.ok:
				t.Errorf("ok is %t", ok)
			case ok && (int(c.Uid) != tt.uid || int(c.Gid) != tt.gid || !slices.Equal(c.Groups, tt.groups)):
				t.Errorf("got %+v, want %+v", *c, tt)
			}
		})
	}
}

func gidOf(t *testing.T, name string) int {
	t.Helper()
	g, err := user.LookupGroup(name)
	if err != nil {
		t.Skip(err)
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		t.Fatal(err)
	}
	return gid
}

func TestMountedApart(t *testing.T) {
	for text, want := range map[string]bool{
		"[Service]\nExecStart=/opt/vllm/bin/vllm\nPrivateTmp=yes\n":   false,
		"[Service]\nBindReadOnlyPaths=/nfs/m:/srv/m\n":                true,
		"[Service]\n  RootImage=/var/lib/engine.raw\n":                true,
		"[Service]\n# BindPaths=/a:/b\nInaccessiblePaths=-/srv/old\n": true,
		"[Service]\nEnvironment=BindPaths=1\n":                        false,
	} {
		if got := mountedApart([]byte(text)); got != want {
			t.Errorf("%q: got %t", text, got)
		}
	}
}

// The child of a root process is nobody's: it has none of our groups, so that a model of theirs is not for it to read.
func TestVerifyAsDropsGroups(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	c, ok := credentials([]string{"User=nobody"}, "/srv/m")
	if !ok || c.NoSetGroups || c.Uid == 0 || c.Gid == 0 {
		t.Errorf("got %+v", c)
	}
}
