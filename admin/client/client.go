package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/errkind"
)

// Client does operations through the API of this process. It is safe for concurrent use.
type Client struct {
	http *http.Client
	key  string // Idempotency-Key of acts; "": none
}

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

// Run is admin's Operation.Run with the identity of the page's request.
func (c *Client) Run(ctx context.Context, o admin.Operation, in any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Limit()+slack)
	defer cancel()
	req, err := api.NewRequest(ctx, localRoot, o, in)
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

// send sends a request and returns the head of the answer.
func (c *Client) send(ctx context.Context, o admin.Operation, req *http.Request) (*http.Response, error) {
	if c.key != "" && o.Changes {
		req.Header.Set("Idempotency-Key", c.key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.silent(ctx, o, err)
	}
	return res, nil
}

// silent is the error of a request without an answer. An act may have taken effect.
func (c *Client) silent(ctx context.Context, o admin.Operation, err error) error {
	switch {
	case o.Changes:
		return &admin.UnknownOutcomeError{Err: &admin.UnavailableError{Err: fmt.Errorf("no answer: %w; this may or may not have taken effect: look before you repeat it", err)}}
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Cause(ctx)
	}
	return &admin.UnavailableError{Err: fmt.Errorf("no answer: %w", err)}
}

// strange is an answer that the console does not understand.
func (c *Client) strange(err error) error { return fmt.Errorf("unexpected answer of the API: %w", err) }

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
		return nil, err
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
