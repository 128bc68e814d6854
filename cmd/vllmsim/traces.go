package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// shmFile is one file in /dev/shm. {pid} in the name becomes the maker's.
type shmFile struct {
	Name   string
	Bytes  int64
	Mapped bool // stays mapped by its maker
}

// assignShm gives the engine and its workers the files that the real ones were seen with.
func assignShm(engine *childSpec, cuda bool, rendezvous, extra string) {
	segment := func(bytes int64) shmFile { return shmFile{"psm_" + randomHex(8), bytes, true} }
	lock := func() shmFile { return shmFile{"sem.mp-" + randomName(8), 32, true} }
	loky := func() shmFile { return shmFile{"sem.loky-{pid}-" + randomName(8), 32, true} }
	const queue, ring, small = 167_772_180, 251_658_260, 25_165_836
	switch world := len(engine.Workers); {
	case world == 0:
		engine.Shm = []shmFile{loky()}
	case world == 1:
		engine.Shm = []shmFile{segment(queue)}
		engine.Workers[0].Shm = []shmFile{segment(ring), lock()}
	default:
		engine.Shm = []shmFile{segment(queue)}
		engine.Workers[0].Shm = []shmFile{segment(small)}
		for rank := range engine.Workers {
			w := &engine.Workers[rank]
			w.Shm = append(w.Shm, segment(ring))
			if cuda {
				w.Shm = append(w.Shm, loky())
			} else {
				name := fmt.Sprintf("%s-tp:0-[0-%d]-cpushm_%d", filepath.Base(rendezvous), world-1, rank)
				w.Shm = append(w.Shm, lock(), shmFile{name, 4_194_560, true})
			}
		}
	}
	for field := range strings.FieldsSeq(extra) {
		name, bytes, _ := strings.Cut(field, ":")
		n, _ := strconv.ParseInt(bytes, 10, 64)
		engine.Shm = append(engine.Shm, shmFile{name, n, false})
	}
}

// create makes the file, sparse like the real ones: some pages written, the rest only promised.
func (f shmFile) create(path string) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		fmt.Fprintf(os.Stderr, "vllmsim: cannot create %q: %v\n", path, err)
		return
	}
	defer unix.Close(fd)
	unix.Ftruncate(fd, f.Bytes)
	unix.Pwrite(fd, make([]byte, min(f.Bytes, 45<<10)), 0)
	if f.Mapped && f.Bytes > 0 {
		unix.Mmap(fd, 0, int(f.Bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	}
}

// leaveSocket listens on a Unix socket in the temporary directory, named by a bare uuid. It stays there when the
// process ends, as the real ones do even after a clean exit.
func leaveSocket() {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	if unix.Bind(fd, &unix.SockaddrUnix{Name: temporary(uuid4())}) == nil {
		unix.Listen(fd, 100)
	}
}

func temporary(name string) string { return filepath.Join(os.TempDir(), name) }

func randomHex(digits int) string {
	b := make([]byte, digits/2)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// randomName is like what Python's multiprocessing appends to the names of its semaphores.
func randomName(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789_"
	b := make([]byte, n)
	rand.Read(b)
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return string(b)
}

func uuid4() string {
	h := []byte(randomHex(32))
	h[12], h[16] = '4', "89ab"[h[16]%4]
	return fmt.Sprintf("%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}
