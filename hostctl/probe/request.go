package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// bodyLimit bounds an answer. The longest honest one, a list of models with their permissions, has a few kilobytes.
const bodyLimit = 1 << 20

// ask sends one request, with question as JSON unless it is nil, and returns the body of the answer if its status is 200.
func (s *session) ask(ctx context.Context, method, path string, question any) ([]byte, error) {
	body, err := s.exchange(ctx, method, path, question)
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", excerpt(s.target.String()), err)
	}
	return body, nil
}

func (s *session) exchange(ctx context.Context, method, path string, question any) ([]byte, error) {
	began := time.Now()
	var send io.Reader
	if question != nil {
		text, err := json.Marshal(question)
		if err != nil {
			return nil, err
		}
		send = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, s.url(path), send)
	if err != nil {
		return nil, errors.New(excerpt(err.Error()))
	}
	request.Header.Set("Content-Type", "application/json")
	if s.target.APIKey != "" {
		request.Header.Set("Authorization", "Bearer "+s.target.APIKey)
	}
	// Present and empty, this makes net/http repeat a request whose kept connection the server closed before it answered
	// anything. It is not sent.
	request.Header["Idempotency-Key"] = nil
	response, err := s.client.Do(request)
	if err != nil {
		return nil, transferError(ctx, path, began, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, bodyLimit+1))
	switch {
	case response.StatusCode != http.StatusOK:
		return nil, &StatusError{Path: path, Code: response.StatusCode, Message: serverMessage(body)}
	case err != nil:
		return nil, transferError(ctx, path, began, err)
	case len(body) > bodyLimit:
		return nil, fmt.Errorf("the answer to %s is longer than 1 MiB", path)
	}
	return body, nil
}

// transferError says why there was no whole answer. The text of an HTTP library's error quotes the server.
func transferError(ctx context.Context, path string, began time.Time, err error) error {
	var inner *url.Error
	if errors.As(err, &inner) {
		err = inner.Err
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("no answer to %s in %s: %w", path, time.Since(began).Round(10*time.Millisecond), ctx.Err())
	case isRefused(err):
		return ErrNotListening
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the server closed the connection before it had answered %s", path)
	default:
		return fmt.Errorf("no answer to %s: %s", path, excerpt(err.Error()))
	}
}

// decode reads a JSON answer.
func decode(path string, body []byte, answer any) error {
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("the answer to %s is not what vLLM sends: \"%s\"", path, excerpt(string(body)))
	}
	return nil
}
