package conf

import (
	"regexp"
	"sync"
)

// lazily returns a regular expression that is compiled when it is first asked for. Most processes of this program, such
// as the hooks of a unit, read no profile, and compiling took half of their start.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
