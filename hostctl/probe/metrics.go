package probe

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
)

// Requests returns how many requests the server is working on, or has waiting, by its own metrics. A server of several
// models or engines adds them up.
func (t Target) Requests(ctx context.Context) (int, error) {
	s := t.open()
	defer s.close()
	body, err := s.ask(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	for line := range bytes.Lines(body) {
		name, _, _ := bytes.Cut(line, []byte("{"))
		if !bytes.Equal(name, []byte("vllm:num_requests_running")) && !bytes.Equal(name, []byte("vllm:num_requests_waiting")) {
			continue
		}
		value, err := strconv.ParseFloat(string(bytes.TrimSpace(line[bytes.LastIndexByte(line, ' ')+1:])), 64)
		if err != nil || !(value >= 0 && value < 1e9) {
			return 0, fmt.Errorf("cannot ask %s: %s is no number of requests", excerpt(t.String()), excerpt(string(line)))
		}
		sum, found = sum+value, true
	}
	if !found {
		return 0, fmt.Errorf("cannot ask %s: it does not say how many requests it has", excerpt(t.String()))
	}
	return int(sum), nil
}
