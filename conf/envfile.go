package conf

import (
	"fmt"
	"strings"
)

// maxEnvFile is the most bytes of an env_file that are read.
const maxEnvFile = 64 << 10

// assignment is one NAME=value of an env_file. The value is a secret and never kept.
type assignment struct {
	name string
	line int
}

// envFileFault says what is wrong with what an env_file sets. It names variables, never values.
func envFileFault(text string) *fault {
	if at := notText(text); at >= 0 {
		return faultf("is no text file: line %d holds a byte 0x%02x", 1+strings.Count(text[:at], "\n"), text[at])
	}
	var wrong []string
	hint := ""
	for _, a := range assignments(text) {
		message, why := "", ""
		switch {
		case !envName().MatchString(a.name):
			message = fmt.Sprintf("line %d is not NAME=value", a.line)
			why = "systemd would leave it out without a word"
			if strings.HasPrefix(a.name, "export ") {
				why = `systemd knows no "export", and would leave it out without a word`
			}
		case reserved(a.name) != "":
			message, why = fmt.Sprintf("line %d sets %s", a.line, a.name), reserved(a.name)
		case strings.HasPrefix(a.name, "LD_"):
			message, why = fmt.Sprintf("line %d sets %s", a.line, a.name), "set it in env, where everybody sees it"
		}
		if message != "" {
			wrong = append(wrong, message)
			if hint == "" {
				hint = why
			}
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	const most = 3
	if n := len(wrong); n > most {
		wrong = append(wrong[:most], fmt.Sprintf("%d more", n-most))
	}
	return faultf("cannot be used: %s", strings.Join(wrong, ", ")).hinted("%s", hint)
}

// assignments reads a file as systemd reads an EnvironmentFile= (systemd.exec(5)): "#" and ";" begin comments, a
// backslash joins lines, quotes may span lines. A line without "=" counts as an assignment with the name it has, for
// systemd leaves it out. Since systemd 254 a backslash at the end of a comment does not continue it; older ones do,
// and see less.
func assignments(text string) (all []assignment) {
	p := envParser{text: text, line: 1}
	for p.skipBlank(); p.at < len(p.text); p.skipBlank() {
		if c := p.text[p.at]; c == '#' || c == ';' {
			p.skipLine()
			continue
		}
		a := assignment{line: p.line}
		start := p.at
		for p.at < len(p.text) && !isNewline(p.text[p.at]) && p.text[p.at] != '=' {
			p.at++
		}
		a.name = strings.TrimRight(p.text[start:p.at], " \t")
		if p.at < len(p.text) && p.text[p.at] == '=' {
			p.at++
			p.skipValue()
		} else {
			a.name += "\n" // no name has that
		}
		all = append(all, a)
	}
	return all
}

type envParser struct {
	text string
	at   int
	line int
}

func isNewline(c byte) bool { return c == '\n' || c == '\r' }

// next passes over one byte.
func (p *envParser) next() (c byte) {
	c = p.text[p.at]
	if p.at++; c == '\n' {
		p.line++
	}
	return c
}

func (p *envParser) skipBlank() {
	for p.at < len(p.text) && (isNewline(p.text[p.at]) || p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.next()
	}
}

func (p *envParser) skipLine() {
	for p.at < len(p.text) && !isNewline(p.text[p.at]) {
		p.next()
	}
}

// skipValue passes over a value, to the end of its last line.
func (p *envParser) skipValue() {
	bare := false // a quote inside a bare value is an ordinary character
	for p.at < len(p.text) {
		c := p.next()
		switch {
		case isNewline(c):
			return
		case c == '\\':
			if p.at < len(p.text) {
				p.next()
			}
			bare = true
		case !bare && (c == '"' || c == '\''):
			p.skipQuoted(c)
		case c != ' ' && c != '\t':
			bare = true
		}
	}
}

func (p *envParser) skipQuoted(quote byte) {
	for p.at < len(p.text) {
		c := p.next()
		if c == quote {
			return
		}
		if c == '\\' && quote == '"' && p.at < len(p.text) {
			p.next()
		}
	}
}
