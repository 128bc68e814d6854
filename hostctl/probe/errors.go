package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
)

// ErrNotListening says that nothing accepts connections at the target: an engine that still loads, or none at all.
var ErrNotListening = errors.New("nothing listens there")

// ErrUnauthorized says that the server wants another API key.
var ErrUnauthorized = errors.New("the API key was not accepted")

// StatusError is an answer with a status other than 200. For 401 and 403 it is [ErrUnauthorized] too.
type StatusError struct {
	Path    string // what was asked for: "/health"
	Code    int    // HTTP status, 100 to 999
	Message string // what the server said, cut and escaped; "" when it said nothing
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s answers %d", e.Path, e.Code)
	if name := http.StatusText(e.Code); name != "" {
		text += " " + name
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Is makes [errors.Is] find [ErrUnauthorized].
func (e *StatusError) Is(target error) bool {
	return target == ErrUnauthorized && (e.Code == http.StatusUnauthorized || e.Code == http.StatusForbidden)
}

// WrongModelError says that the server serves under none of the expected names.
type WrongModelError struct {
	Want []string // what was expected, any of them
	Got  []string // what the server said; its words, not escaped
}

func (e *WrongModelError) Error() string {
	got := "no model"
	if len(e.Got) > 0 {
		got = quoteList(e.Got)
	}
	return fmt.Sprintf("the server answers as %s, not as %s", got, quoteList(e.Want))
}

// isRefused says whether an error of connecting means that nobody listens. A unix socket's file may also be absent.
func isRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
}

// serverMessage finds the human part of an error answer: vLLM's {"error": {"message": ..}} and {"error": ".."}, FastAPI's
// {"detail": ..}, otherwise the text itself.
func serverMessage(body []byte) string {
	var answer struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  string          `json:"detail"`
	}
	text := string(body)
	if json.Unmarshal(body, &answer) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		var plain string
		switch {
		case json.Unmarshal(answer.Error, &inner) == nil && inner.Message != "":
			text = inner.Message
		case json.Unmarshal(answer.Error, &plain) == nil && plain != "":
			text = plain
		case answer.Message != "":
			text = answer.Message
		case answer.Detail != "":
			text = answer.Detail
		}
	}
	return excerpt(strings.TrimSpace(text))
}

// excerpt makes the begin of a foreign text fit for one line of a terminal.
func excerpt(text string) string {
	const limit = 200
	cut := ""
	if len(text) > limit {
		text, cut = text[:limit], "..."
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`) + cut
}

// quoteList writes foreign names as "a", "b" and says how many more there are.
func quoteList(names []string) string {
	const limit = 4
	var quoted []string
	for _, name := range names[:min(len(names), limit)] {
		quoted = append(quoted, `"`+excerpt(name)+`"`)
	}
	text := strings.Join(quoted, ", ")
	if len(names) > limit {
		text += fmt.Sprintf(" and %d more", len(names)-limit)
	}
	return text
}
