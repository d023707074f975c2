package provider

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/belfryhq/belfry/outbox/sender"
)

const (
	fcmScope    = "https://www.googleapis.com/auth/firebase.messaging"
	fcmGrant    = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	fcmLifetime = time.Hour // of the assertion; the maximum
	fcmSkew     = 10 * time.Second
	// early is the maximum time before its expiry at which a token is replaced.
	fcmEarly = 5 * time.Minute
	// pause is the time after a failure for which no token is requested.
	fcmPause = time.Second
	// fresh is the age below which a rejected token is not replaced, because FCM would reject the next one too.
	fcmFresh = time.Minute
)

// fcmMaxToken is the maximum length of an access token in bytes.
const fcmMaxToken = 8192

var fcmTokenShape = regexp.MustCompile(`^[\x21-\x7e]+$`)

// fcmTokens stores the access token. It is safe for concurrent use.
type fcmTokens struct {
	client  *httpClient
	account fcmAccount
	url     string
	now     func() time.Time
	// asking contains a value while a send requests a token.
	asking chan struct{}

	mu      sync.Mutex
	token   string
	since   time.Time // time of its request
	refresh time.Time // time at which it must be replaced
	expires time.Time
	failure sender.Result // of the last request; valid until retry
	retry   time.Time
}

// get returns a token, or the result of a send without a token.
func (t *fcmTokens) get(ctx context.Context) (string, *sender.Result) {
	token, stale, failure := t.cached()
	switch {
	case token != "" && !stale:
		return token, nil
	case token != "": // still valid while another send requests the next one
		select {
		case t.asking <- struct{}{}:
		default:
			return token, nil
		}
	case failure != nil:
		return "", failure
	default:
		select {
		case t.asking <- struct{}{}:
		case <-ctx.Done():
			return "", &sender.Result{Class: sender.Retryable, Code: "oauth_timeout", Detail: "no access token in time"}
		}
	}
	defer func() { <-t.asking }()
	// A concurrent send may have finished its request.
	if token, stale, failure = t.cached(); token != "" && !stale {
		return token, nil
	} else if token == "" && failure != nil {
		return "", failure
	}
	return t.ask(ctx)
}

// cached returns the valid token if there is one, whether a refresh is due, and the failure during its pause.
func (t *fcmTokens) cached() (token string, stale bool, failure *sender.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if now.Before(t.retry) {
		failed := t.failure
		failure = &failed
	}
	if t.token == "" || !now.Before(t.expires) {
		return "", false, failure
	}
	return t.token, !now.Before(t.refresh) && failure == nil, failure
}

// drop removes a token that FCM rejected, unless it was replaced already. It reports whether a retry is useful.
func (t *fcmTokens) drop(token string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != token {
		return true
	}
	if t.now().Before(t.since.Add(fcmFresh)) {
		return false
	}
	t.token = ""
	return true
}

// ask requests a token and stores the token or the failure.
func (t *fcmTokens) ask(ctx context.Context) (string, *sender.Result) {
	began := t.now()
	token, valid, failure := t.request(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if failure == nil {
		t.token, t.since, t.expires = token, began, began.Add(valid)
		t.refresh = t.expires.Add(-min(fcmEarly, valid/5))
		t.retry = time.Time{}
		return token, nil
	}
	if ctx.Err() == nil { // the caller's timeout is not a failure of the provider
		t.failure, t.retry = *failure, t.now().Add(max(fcmPause, failure.RetryAfter))
	}
	if t.token != "" && t.now().Before(t.expires) {
		return t.token, nil
	}
	return "", failure
}

// request makes one request for a token, whether or not the message that needs it may still be sent: others share it. Its
// failures are retryable, because nothing was sent to FCM.
func (t *fcmTokens) request(ctx context.Context) (string, time.Duration, *sender.Result) {
	ctx = sender.WithCheck(ctx, func() error { return nil })
	failed := func(code, detail string, wait time.Duration) (string, time.Duration, *sender.Result) {
		return "", 0, &sender.Result{Class: sender.Retryable, Code: "oauth_" + code, Detail: "access token: " + detail, RetryAfter: wait}
	}
	assertion, err := t.assertion()
	if err != nil {
		return failed("assertion", "signing with the key failed", 0)
	}
	form := url.Values{"grant_type": {fcmGrant}, "assertion": {assertion}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, strings.NewReader(form))
	if err != nil {
		return failed("request", "the request is not valid HTTP", 0)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := t.client.do(req)
	if err != nil {
		failure := failureOf(err)
		return failed(failure.Code, failure.Detail, 0)
	}
	var reply struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
		Error       string `json:"error"`
	}
	if err := json.Unmarshal(answer.body, &reply); err != nil {
		reply.AccessToken = ""
	}
	if answer.status != http.StatusOK {
		code := keptCode(reply.Error)
		if code == "" {
			code = strconv.Itoa(answer.status)
		}
		return failed(code, http.StatusText(answer.status), retryAfter(answer.header, t.now()))
	}
	if len(reply.AccessToken) > fcmMaxToken || !fcmTokenShape.MatchString(reply.AccessToken) || reply.ExpiresIn <= 0 ||
		reply.ExpiresIn > 1<<31 {
		return failed("answer", "an answer without a token", 0)
	}
	return reply.AccessToken, time.Duration(reply.ExpiresIn) * time.Second, nil
}

// assertion returns the signed claim of the service account (RFC 7523, RS256).
func (t *fcmTokens) assertion() (string, error) {
	now := t.now()
	claim := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"iss": t.account.email, "scope": fcmScope, "aud": t.url,
		"iat": now.Add(-fcmSkew).Unix(), "exp": now.Add(fcmLifetime - fcmSkew).Unix(),
	})
	claim.Header["kid"] = t.account.keyID
	return claim.SignedString(t.account.key)
}
