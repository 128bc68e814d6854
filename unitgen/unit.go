// Package unitgen turns a host profile into the text of systemd units: what systemd should then have.
//
// It is pure: the same profile gives the same text, and nothing of the host is looked at. It owns quoting, the
// [X-Vllmhost] section that marks a unit as ours, and the comparison of two units by meaning. Reading and writing the
// files is not its business.
package unitgen

import (
	"fmt"
	"strings"

	"vllmhost/conf"
)

// Unit is one unit file.
type Unit struct {
	Name string // vllm-INSTANCE.service
	Text []byte
}

// UnitName returns the name of an instance's unit.
func UnitName(instance string) string { return "vllm-" + instance + ".service" }

// InstanceOf returns the instance of a unit named by UnitName, and whether name is such a name.
func InstanceOf(name string) (instance string, ok bool) {
	instance, isService := strings.CutSuffix(name, ".service")
	instance, isOurs := strings.CutPrefix(instance, "vllm-")
	return instance, isService && isOurs && instance != ""
}

// RenderAll returns the units of all instances of a profile that Load returned, ordered by name.
func RenderAll(p *conf.Profile) []Unit {
	var units []Unit
	for _, name := range p.InstanceNames() {
		units = append(units, Render(p, name))
	}
	return units
}

// writer builds a unit's text.
type writer struct{ b strings.Builder }

func (w *writer) line(s string)     { w.b.WriteString(s + "\n") }
func (w *writer) blank()            { w.b.WriteString("\n") }
func (w *writer) set(key, v string) { w.line(key + "=" + v) }

// why adds a comment: the reason for the lines below it.
func (w *writer) why(format string, args ...any) { w.line("# " + fmt.Sprintf(format, args...)) }
