package units

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DropIns returns the paths of the drop-ins in this directory that change a unit, systemd.unit(5): for vllm-a-b.service
// those of vllm-a-b.service.d, vllm-a-.service.d, vllm-.service.d and service.d, in that order, each sorted. They
// belong to the administrator. Others may lie in other directories: what systemd has loaded, only systemd knows.
func (d Dir) DropIns(name string) ([]string, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("cannot list drop-ins: %w", err)
	}
	var files []string
	for _, dir := range dropInDirs(name) {
		dir = filepath.Join(d.Path, dir)
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot list %q: %w", dir, cause(err))
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".conf") && !strings.HasPrefix(e.Name(), ".") {
				files = append(files, filepath.Join(dir, e.Name()))
			}
		}
	}
	return files, nil
}

// dropInDirs returns the names of the directories that apply to a unit, the most specific first.
func dropInDirs(name string) []string {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return nil
	}
	stem, suffix := name[:dot], name[dot:]
	dirs := []string{name + ".d"}
	for i := len(stem) - 2; i >= 0; i-- { // a stem that ends in "-" has its own directory already
		if stem[i] == '-' {
			dirs = append(dirs, stem[:i+1]+suffix+".d")
		}
	}
	return append(dirs, suffix[1:]+".d")
}
