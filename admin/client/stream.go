package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/internal/errkind"
)

const (
	// quiet is how long a stream says nothing before it is given up: a server says something
	// every 15 seconds.
	quiet = time.Minute
	// maxEvent bounds an event of a stream.
	maxEvent = 16 << 20
)

// errQuiet is the cause of a stream that said nothing for too long.
var errQuiet = errors.New("nothing came for " + quiet.String())

// Stream is admin's Operation.Stream with the identity of the page's request.
func (c *Client) Stream(ctx context.Context, o admin.Operation, in any, each func(item any) error) (any, error) {
	asked, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	giveUp := time.AfterFunc(quiet, func() { cancel(errQuiet) })
	defer giveUp.Stop()
	req, err := api.NewRequest(asked, localRoot, o, in)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := c.send(asked, o, req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	if res.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
		if err != nil {
			return nil, c.silent(asked, o, err)
		}
		return c.problem(o, res, body)
	}
	out, err := c.events(o, res.Body, each, func() { giveUp.Reset(quiet) })
	switch {
	case ctx.Err() != nil: // whoever looked has seen enough
		return nil, nil
	case errors.Is(err, errBroken):
		return nil, c.silent(asked, o, errors.Join(err, context.Cause(asked)))
	}
	return out, err
}

// errBroken is a stream that ended before its end.
var errBroken = errors.New("the stream broke off")

// events reads a stream to its end.
func (c *Client) events(o admin.Operation, from io.Reader, each func(item any) error, heard func()) (any, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxEvent)
	name := ""
	for lines.Scan() {
		heard()
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			name = ""
		case field == "event":
			name = value
		case field != "data":
		case name == "end":
			return c.end(o, value)
		case name == "problem":
			var problem api.Problem
			if err := json.Unmarshal([]byte(value), &problem); err != nil {
				return nil, c.strange(err)
			}
			if problem.Kind == "" {
				problem.Kind = errkind.Unavailable
			}
			return nil, problem.Err(o)
		default:
			item, err := o.ReadItem([]byte(value))
			if err != nil {
				return nil, c.strange(err)
			}
			if err := each(item); err != nil {
				return nil, err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	return nil, errBroken
}

// end is what a stream says at its end; nil: nothing.
func (c *Client) end(o admin.Operation, value string) (any, error) {
	out, err := o.ReadResult([]byte(value), "")
	if err != nil {
		return nil, c.strange(err)
	}
	if _, nothing := out.(admin.None); nothing {
		return nil, nil
	}
	return out, nil
}
