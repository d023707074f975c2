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
	fcmLifetime = time.Hour // of the assertion, the longest that is allowed
	fcmSkew     = 10 * time.Second
	// early is how long before its end a token is replaced at most.
	fcmEarly = 5 * time.Minute
	// pause is how long a failure is answered without asking again.
	fcmPause = time.Second
	// fresh is the age below which a token that FCM refuses is not replaced: the next one
	// would be refused as well.
	fcmFresh = time.Minute
)

// fcmMaxToken is how many bytes an access token has at most.
const fcmMaxToken = 8192

var fcmTokenShape = regexp.MustCompile(`^[\x21-\x7e]+$`)

// fcmTokens has the access token, for any number of sends at once.
type fcmTokens struct {
	client  *httpClient
	account fcmAccount
	url     string
	now     func() time.Time
	// asking holds a value while one send asks for a token.
	asking chan struct{}

	mu      sync.Mutex
	token   string
	since   time.Time // when it was asked for
	refresh time.Time // from when on it is to be replaced
	expires time.Time
	failure sender.Result // of the last request, until retry
	retry   time.Time
}

// get returns a token, or the result of having none.
func (t *fcmTokens) get(ctx context.Context) (string, *sender.Result) {
	token, stale, failure := t.cached()
	switch {
	case token != "" && !stale:
		return token, nil
	case token != "": // good still: nobody need wait for the next one
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
	// Whoever asked before may have found out.
	if token, stale, failure = t.cached(); token != "" && !stale {
		return token, nil
	} else if token == "" && failure != nil {
		return "", failure
	}
	return t.ask(ctx)
}

// cached is what is known without asking.
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

// drop forgets a token that FCM refused, unless it was replaced already. It reports
// whether there is sense in another try.
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

// ask requests a token and keeps what comes of it.
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
	if ctx.Err() == nil { // the failure of one caller's own time is not the provider's
		t.failure, t.retry = *failure, t.now().Add(max(fcmPause, failure.RetryAfter))
	}
	if t.token != "" && t.now().Before(t.expires) {
		return t.token, nil
	}
	return "", failure
}

// request is one request for a token. Whatever goes wrong, nothing was sent to FCM.
func (t *fcmTokens) request(ctx context.Context) (string, time.Duration, *sender.Result) {
	failed := func(code, detail string, wait time.Duration) (string, time.Duration, *sender.Result) {
		return "", 0, &sender.Result{Class: sender.Retryable, Code: "oauth_" + code, Detail: "access token: " + detail, RetryAfter: wait}
	}
	assertion, err := t.assertion()
	if err != nil {
		return failed("assertion", "the key cannot sign", 0)
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
	if len(reply.AccessToken) > fcmMaxToken || !fcmTokenShape.MatchString(reply.AccessToken) || reply.ExpiresIn <= 0 || reply.ExpiresIn > 1<<31 {
		return failed("answer", "an answer without a token", 0)
	}
	return reply.AccessToken, time.Duration(reply.ExpiresIn) * time.Second, nil
}

// assertion is the signed claim by which the service account asks (RFC 7523, RS256).
func (t *fcmTokens) assertion() (string, error) {
	now := t.now()
	claim := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"iss": t.account.email, "scope": fcmScope, "aud": t.url,
		"iat": now.Add(-fcmSkew).Unix(), "exp": now.Add(fcmLifetime - fcmSkew).Unix(),
	})
	claim.Header["kid"] = t.account.keyID
	return claim.SignedString(t.account.key)
}
