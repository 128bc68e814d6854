package proc

import (
	"os"
	"os/user"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// UserName returns the name of a user, or "uid 61234" when the system has none. Dynamic users of systemd are found too:
// the program has no cgo and hence no nss-systemd, but systemd keeps a link for each (src/core/dynamic-user.c).
func UserName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	if name, err := os.Readlink("/run/systemd/dynamic-uid/direct:" + id); err == nil {
		return name
	}
	return "uid " + id
}

// escape replaces what a terminal does not simply show (control characters, line breaks, invisible characters, those that
// turn the direction of writing, bytes that are not UTF-8) by Go's escape sequences.
func escape(s string) string {
	var b strings.Builder
	for i, r := range s {
		_, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
