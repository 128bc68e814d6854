package term

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf16"
)

// JSON prints v to stdout as one indented JSON document. Its first field is to be "schema". Strings are written so that
// a terminal shows them as they are; a program that reads them gets the very same text. The error is that of encoding v,
// which is a mistake in the program; errors of writing are kept for Failed.
func (p *Printer) JSON(v any) error {
	var document bytes.Buffer
	encoder := json.NewEncoder(&document)
	encoder.SetEscapeHTML(false) // "->" and "&" are common in our words and no browser reads this
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("internal error: cannot encode %T: %v", v, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(&p.out, visible(document.String()))
	return nil
}

// visible escapes what encoding/json leaves as it is and a terminal would act on: C1 controls, bidirectional and other
// invisible characters. All of them are above ASCII and therefore inside strings, where \u is understood.
func visible(document string) string {
	var b bytes.Buffer
	for _, r := range document {
		switch {
		case r < 0x7f || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
