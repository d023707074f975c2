package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/channels/unsubscribe"
)

const (
	unsubscribePath = "/unsubscribe/"
	unsubscribeTime = 10 * time.Second
	unsubscribeBody = 4 << 10
	// unsubscribeAtOnce bounds the connections that recipients take from operators.
	unsubscribeAtOnce = 2
	unsubscribeReason = "by the recipient, through the link in a message"
)

// UnsubscribeLinks reads the keys of unsubscribe links. It returns nil if none are configured.
func (c Config) UnsubscribeLinks() (*unsubscribe.Links, error) {
	if c.UnsubscribeKeysFile == "" {
		return nil, nil //nolint:nilnil // none are configured
	}
	links, err := unsubscribe.Open(c.UnsubscribeKeysFile)
	if err != nil {
		return nil, fmt.Errorf("api.unsubscribe_keys_file: %w", err)
	}
	return links, nil
}

// UnsubscribeURL returns the URL of an unsubscribe link. The configuration must be valid.
func (c Config) UnsubscribeURL(links *unsubscribe.Links, link unsubscribe.Link) string {
	at, _ := publicOf(c.PublicURL) // Validate has let it pass
	return at.url(unsubscribePath + links.Sign(link))
}

// unsubscribing limits requests of recipients.
type unsubscribing struct {
	invalid *lockout      // invalid links, by address
	valid   *lockout      // valid links, by channel
	acting  chan struct{} // opt-outs that are recorded now
}

func (h *Handler) newUnsubscribing() unsubscribing {
	return unsubscribing{
		invalid: newLockout(20, 6*time.Second, func(from string) {
			h.Log.Warn().Str("detail", from).Msg("too many invalid unsubscribe links from one address")
		}),
		valid:  newLockout(20, 6*time.Second, func(string) {}),
		acting: make(chan struct{}, unsubscribeAtOnce),
	}
}

// unsubscribe serves an unsubscribe link of a recipient, who has no token. The link is the authority, so that the
// origin of the request does not matter.
//
//	GET   a page with a button; changes nothing, because scanners follow links
//	POST  List-Unsubscribe=One-Click (RFC 8058) records the opt-out
//
// The answers do not depend on whether the channel exists.
func (h *Handler) unsubscribe(w http.ResponseWriter, req *http.Request) {
	signed := strings.TrimPrefix(req.URL.EscapedPath(), unsubscribePath)
	post := req.Method == http.MethodPost
	if !post && req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD, POST")
		answerPage(w, http.StatusMethodNotAllowed, "This cannot be done", "Allowed methods: GET, HEAD, POST.")
		return
	}
	link, err := h.Unsubscribe.Read(signed)
	if err != nil {
		if tooOften(w, h.unsubscribing.invalid.bad(h.Proxy.client(req))) {
			return
		}
		answerPage(w, http.StatusNotFound, "This link is not valid", "It may be incomplete. Open it from the message again.")
		return
	}
	if !post {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		answerPage(w, http.StatusOK, "Unsubscribe", unsubscribeForm)
		return
	}
	// Valid links are not counted by address: a mail provider sends the requests of all its users from few addresses.
	if !tooOften(w, h.unsubscribing.valid.bad(strconv.FormatInt(link.ChannelID, 10))) {
		h.recordOptOut(w, req, link)
	}
}

// tooOften responds if wait is positive, and reports whether it did.
func tooOften(w http.ResponseWriter, wait time.Duration) bool {
	if wait <= 0 {
		return false
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	answerPage(w, http.StatusTooManyRequests, "Try again later", "There were too many requests.")
	return true
}

// recordOptOut records an opt-out, even if the client disconnects.
func (h *Handler) recordOptOut(w http.ResponseWriter, req *http.Request, link unsubscribe.Link) {
	req.Body = http.MaxBytesReader(w, req.Body, unsubscribeBody)
	if req.PostFormValue("List-Unsubscribe") != "One-Click" {
		answerPage(w, http.StatusBadRequest, "Nothing has changed", "The allowed body is List-Unsubscribe=One-Click, as a form.")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), unsubscribeTime)
	defer cancel()
	err := errReadOnly
	if !h.ReadOnly {
		err = h.optOut(ctx, link)
	}
	switch {
	case err == nil:
		answerPage(w, http.StatusOK, "You have unsubscribed",
			"You will get no more of these messages. One that is on its way already may still come.")
	case errors.Is(err, channels.ErrPreference): // the category or the medium does not exist any more
		answerPage(w, http.StatusNotFound, "This link is not valid any more", "These messages are not sent any more.")
	default:
		h.Log.Error().Err(err).Int64("channel_id", link.ChannelID).Msg("a recipient could not unsubscribe")
		w.Header().Set("Retry-After", "60")
		answerPage(w, http.StatusServiceUnavailable, "Try again later",
			"It is not known whether you have unsubscribed. Doing it twice does no harm.")
	}
}

// errReadOnly rejects an opt-out because of api.read_only.
var errReadOnly = errors.New("this belfry is read-only (api.read_only)")

// optOut records an opt-out. The number of concurrent ones is limited.
func (h *Handler) optOut(ctx context.Context, link unsubscribe.Link) error {
	select {
	case h.unsubscribing.acting <- struct{}{}:
		defer func() { <-h.unsubscribing.acting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := channels.OptOutChannel(ctx, h.Env.DB, channels.OptOut{
		ChannelID: link.ChannelID, Category: link.Category, Medium: link.Medium, Reason: unsubscribeReason,
	})
	return err
}

// unsubscribeForm posts the body of a one-click request (RFC 8058) to the page's own address.
const unsubscribeForm = `<form method="post"><input type="hidden" name="List-Unsubscribe" value="One-Click">` +
	`<button>Unsubscribe</button></form>`

// answerPage writes a page. title and content are HTML.
func answerPage(w http.ResponseWriter, status int, title, content string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("X-Robots-Tag", "noindex")
	w.WriteHeader(status)
	//nolint:gosec // G705: the callers escape
	fmt.Fprintf(w, `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">`+
		"<title>%s</title><h1>%[1]s</h1><div>%s</div></html>\n", title, content)
}
