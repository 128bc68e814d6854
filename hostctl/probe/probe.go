package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Answer is the proof that an engine works: a token it generated.
type Answer struct {
	Model      string        // the name it was asked under
	Tokens     int           // generated tokens by the server's own count, at least 1
	FirstToken time.Duration // from the request to the whole answer of one token
	Text       string        // the token, 4 KiB at most; may be empty (half a character); foreign text, not escaped
	Path       string        // the endpoint that answered: "/v1/completions" or "/v1/chat/completions"
}

// Health asks for /health, which says that the server is up and its engine is not known to be dead. It proves no more:
// vLLM answers it without the engine's help, also while that hangs or sleeps. The error is [ErrNotListening] or a
// [*StatusError] (503 when the engine is dead) where it is one of those, as with the other questions.
func (t Target) Health(ctx context.Context) error {
	s := t.open()
	defer s.close()
	return s.health(ctx)
}

// Listed returns the names under which the server says it serves. They are foreign text.
func (t Target) Listed(ctx context.Context) ([]string, error) {
	s := t.open()
	defer s.close()
	return s.listed(ctx)
}

// OneToken lets the engine generate one token for the first of t.Models, or for the first name that is listed. Servers
// without completions are asked for a chat. A server that does not know the name says so with a [*StatusError], 404.
func (t Target) OneToken(ctx context.Context) (Answer, error) {
	s := t.open()
	defer s.close()
	if len(t.Models) > 0 {
		return s.oneToken(ctx, t.Models[0])
	}
	name, err := s.identify(ctx)
	if err != nil {
		return Answer{}, err
	}
	return s.oneToken(ctx, name)
}

// Ready asks for health, for the name (a [*WrongModelError] when none of t.Models is listed) and for one token, in that
// order over one connection, and ends with the first that fails.
func (t Target) Ready(ctx context.Context) (Answer, error) {
	s := t.open()
	defer s.close()
	if err := s.health(ctx); err != nil {
		return Answer{}, err
	}
	name, err := s.identify(ctx)
	if err != nil {
		return Answer{}, err
	}
	return s.oneToken(ctx, name)
}

func (s *session) health(ctx context.Context) error {
	_, err := s.ask(ctx, http.MethodGet, "/health", nil)
	return err
}

func (s *session) listed(ctx context.Context) ([]string, error) {
	const path = "/v1/models"
	body, err := s.ask(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := decode(path, body, &answer); err != nil {
		return nil, err
	}
	var names []string
	for _, model := range answer.Data {
		names = append(names, model.ID)
	}
	return names, nil
}

// identify returns the first expected name that the server lists, or the first one it lists if none is expected.
func (s *session) identify(ctx context.Context) (string, error) {
	names, err := s.listed(ctx)
	if err != nil {
		return "", err
	}
	want := s.target.Models
	if len(want) == 0 {
		if len(names) == 0 {
			return "", errors.New("the server lists no model")
		}
		return names[0], nil
	}
	for _, name := range want {
		if slices.Contains(names, name) {
			return name, nil
		}
	}
	return "", &WrongModelError{Want: want, Got: names}
}

// oneToken asks for a completion, and for a chat where completions are not to be had: vLLM has none for some kinds of
// models, and says so with 404 or 400.
func (s *session) oneToken(ctx context.Context, model string) (Answer, error) {
	answer, err := s.generate(ctx, model, "/v1/completions", map[string]any{"prompt": "1, 2, 3,"})
	if !isUnsupported(err) {
		return answer, err
	}
	message := map[string]any{"role": "user", "content": "Reply with OK."}
	chat, chatErr := s.generate(ctx, model, "/v1/chat/completions", map[string]any{"messages": []any{message}})
	if isUnsupported(chatErr) {
		return Answer{}, err
	}
	return chat, chatErr
}

func isUnsupported(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && slices.Contains(
		[]int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented}, status.Code)
}

// generated is what is read of a completion or a chat. Tokens are counted by usage only: chunks and words are others. The
// model's name is not read: some versions of vLLM answer under the first of several names.
type generated struct {
	Choices []struct {
		Text    string `json:"text"`
		Message struct {
			Content          string `json:"content"`
			Reasoning        string `json:"reasoning"`
			ReasoningContent string `json:"reasoning_content"` // its name in older versions
		} `json:"message"`
	} `json:"choices"`
	Usage struct {
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
}

func (s *session) generate(ctx context.Context, model, path string, question map[string]any) (Answer, error) {
	question["model"], question["max_tokens"], question["temperature"] = model, 1, 0
	began := time.Now()
	body, err := s.ask(ctx, http.MethodPost, path, question)
	if err != nil {
		return Answer{}, err
	}
	took := time.Since(began)
	var reply generated
	if err := decode(path, body, &reply); err != nil {
		return Answer{}, err
	}
	if reply.Usage.CompletionTokens < 1 {
		return Answer{}, fmt.Errorf("the engine generated no token, %s answers \"%s\"", path, excerpt(string(body)))
	}
	answer := Answer{Model: model, Tokens: reply.Usage.CompletionTokens, FirstToken: took, Path: path}
	if len(reply.Choices) > 0 {
		choice := reply.Choices[0]
		m := choice.Message
		answer.Text = choice.Text + m.Reasoning + m.ReasoningContent + m.Content
		if len(answer.Text) > 4<<10 {
			answer.Text = strings.ToValidUTF8(answer.Text[:4<<10], "")
		}
	}
	return answer, nil
}
