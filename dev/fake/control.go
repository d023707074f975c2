package fake

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
)

func (s *Server) getSummary(w http.ResponseWriter, _ *http.Request) {
	text, err := json.MarshalIndent(s.Summary(), "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // an error means that the client has disconnected
}

// getCalls answers with the last calls, one JSON object per line.
func (s *Server) getCalls(w http.ResponseWriter, r *http.Request) {
	p := Provider(r.FormValue("provider"))
	if p != "" && !slices.Contains(Providers(), p) {
		problem(w, fmt.Sprintf("provider %q is not allowed; allowed values: %s", brief(string(p)), joined(Providers())))
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	e := json.NewEncoder(w)
	for _, c := range s.Calls(p) {
		if err := e.Encode(c); err != nil {
			return // the client has disconnected
		}
	}
}

func (s *Server) deleteCalls(w http.ResponseWriter, _ *http.Request) {
	s.Reset()
	w.WriteHeader(http.StatusNoContent)
}

// putFaults replaces the faults by a list in YAML or JSON.
func (s *Server) putFaults(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		problem(w, "the body cannot be read; allowed: up to 1 MiB")
		return
	}
	faults, err := ParseFaults(string(body))
	if err != nil {
		problem(w, err.Error())
		return
	}
	s.plan.replace(faults)
	w.WriteHeader(http.StatusNoContent)
}

// maxSubscriptions is the maximum number of subscriptions per request.
const maxSubscriptions = 100_000

// subscribe creates subscriptions and returns them, one per line.
func (s *Server) subscribe(w http.ResponseWriter, r *http.Request) {
	count := 1
	if text := r.FormValue("count"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxSubscriptions {
			problem(w, fmt.Sprintf("count %q is not allowed; allowed values: 1 to %d", brief(text), maxSubscriptions))
			return
		}
		count = n
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	for range count {
		if _, err := fmt.Fprintln(w, s.Subscription(rand.Text())); err != nil {
			return
		}
	}
}

// problem rejects a request of the control API.
func problem(w http.ResponseWriter, text string) { http.Error(w, text, http.StatusBadRequest) }
