package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"time"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/errkind"
)

// Client does operations through a server. It is safe for concurrent use; Close ends its
// connections.
type Client struct {
	root, token string // the token may be missing of one in the server's own process
	http        *http.Client
	key         string // Idempotency-Key of acts; "": none
}

// UnfitError is a token or a file of Config that cannot be used, or a token that the server
// does not take. Trying again does not help.
type UnfitError struct{ Err error }

// Error is that of Err.
func (e *UnfitError) Error() string { return e.Err.Error() }

// Unwrap is Err.
func (e *UnfitError) Unwrap() error { return e.Err }

// New returns a client of c.Server. A token that is given is used rather than c.TokenFile's. It
// connects to nothing; an error is an *UnfitError.
func New(c Config, token string) (*Client, error) {
	at, err := root(c.Server)
	if err != nil {
		return nil, &UnfitError{err}
	}
	if token, err = c.tokenOf(token); err != nil {
		return nil, &UnfitError{err}
	}
	transport, err := c.transport()
	if err != nil {
		return nil, &UnfitError{err}
	}
	return &Client{root: at, token: token, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close ends the connections that wait.
func (c *Client) Close() { c.http.CloseIdleConnections() }

const (
	// slack is what a request may take beside its operation.
	slack = 20 * time.Second
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 64 << 20
)

// Question is what a person has to agree to before an operation is run.
func (c *Client) Question(ctx context.Context, o admin.Operation, in any) (admin.Question, error) {
	ask, asks := o.Asking()
	if !asks {
		return admin.Question{}, nil
	}
	out, err := c.Run(ctx, ask, in)
	question, _ := out.(admin.Question)
	return question, err
}

// Run is admin's Operation.Run, in the server, as whom the token says.
func (c *Client) Run(ctx context.Context, o admin.Operation, in any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Limit()+slack)
	defer cancel()
	req, err := api.NewRequest(ctx, c.root, o, in)
	if err != nil {
		return nil, err
	}
	res, err := c.send(ctx, o, req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, c.silent(ctx, o, err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("the answer of the server has more than %d bytes", maxAnswer)
	case res.StatusCode == http.StatusOK:
		next, err := api.NextPage(o, res.Header)
		if err != nil {
			return nil, c.strange(err)
		}
		out, err := o.ReadResult(body, next)
		if err != nil {
			return nil, c.strange(err)
		}
		return out, nil
	}
	return c.problem(o, res, body)
}

// send sends a request with the token and returns the head of the answer.
func (c *Client) send(ctx context.Context, o admin.Operation, req *http.Request) (*http.Response, error) {
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.key != "" && o.Changes {
		req.Header.Set("Idempotency-Key", c.key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.silent(ctx, o, err)
	}
	return res, nil
}

// silent is the error of a request without an answer. One that was sent may have been acted on.
func (c *Client) silent(ctx context.Context, o admin.Operation, err error) error {
	var network *net.OpError
	err = reason(err)
	unsent := errors.As(err, &network) && network.Op == "dial" || errors.As(err, new(*tlsError))
	told := fmt.Errorf("the server at %s does not answer: %w", c.root, err)
	switch {
	case o.Changes && !unsent:
		return &admin.UnknownOutcomeError{Err: &admin.UnavailableError{Err: fmt.Errorf("%w; this may or may not have taken effect: look before you repeat it", told)}}
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Cause(ctx)
	}
	return &admin.UnavailableError{Err: told}
}

// strange is an answer that this belfry does not understand.
func (c *Client) strange(err error) error {
	return fmt.Errorf("the server at %s answers otherwise than this belfry expects; it may be of another version, or no belfry: %w", c.root, err)
}

// problem is the error that the server told, with what was done all the same.
func (c *Client) problem(o admin.Operation, res *http.Response, body []byte) (any, error) {
	var told struct {
		api.Problem

		Result json.RawMessage `json:"result"`
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind != "application/problem+json" || json.Unmarshal(body, &told) != nil {
		return nil, c.strange(fmt.Errorf("status %s", res.Status))
	}
	if told.Kind == "" { // one of the request itself
		told.Kind = map[int]errkind.Kind{
			http.StatusForbidden: errkind.Denied, http.StatusTooManyRequests: errkind.Unavailable, http.StatusServiceUnavailable: errkind.Unavailable,
		}[told.Status]
	}
	err := told.Err(o)
	switch {
	case told.Status == http.StatusUnauthorized:
		return nil, &UnfitError{fmt.Errorf("the server at %s: %w", c.root, err)}
	case told.Kind == "":
		return nil, c.strange(err)
	}
	if len(told.Result) == 0 || string(told.Result) == "null" {
		return nil, err
	}
	out, unread := o.ReadResult(told.Result, "")
	if unread != nil {
		return nil, errors.Join(err, c.strange(unread))
	}
	return out, err
}
