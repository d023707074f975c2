package fake

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FaultGrammar is how a fault is written, for people.
const FaultGrammar = `TARGET: KIND [VALUE] [OPTION VALUE]...

TARGET   webhook, sms, fcm, apns, webpush, smtp, alimtalk; all: each of these;
         token: FCM's OAuth answers; receipts: AlimTalk's results
KIND     latency 200ms, latency 50ms-2s   the answer comes later; adds up with the rest
         status 503                       answered so, in the provider's form; not accepted
         hang                             no answer until the client leaves; not accepted
         reset                            accepted, then the connection is reset unanswered
         slow 10s                         accepted; the answer takes so long to arrive
         huge 64MB                        accepted; so many bytes come before the answer
         garbage                          accepted; the answer cannot be read
         invalid-address                  refused as no address, in the provider's words
         undelivered                      alimtalk: accepted, its result says failed
         unreported                       alimtalk: accepted, its result never comes
         refused                          alimtalk: this message of the call is refused
OPTION   share 0.1        hits this share of the calls that match, by the seed
         count 100        hits so often and no more
         skip 10          leaves so many calls that match alone first
         address REGEXP   only calls to addresses that match, without blanks
         key REGEXP       only calls with idempotency keys that match
         retry-after 2s   status: asks to wait so long, in whole seconds
         accepted yes|no  status, hang, reset: whether the message was taken

The first fault that applies decides about a call.`

// ParseFault reads a fault from text as FaultGrammar describes it. Errors name the
// part that is wrong and what is allowed there.
func ParseFault(text string) (Fault, error) {
	f, err := parseFault(text)
	if err != nil {
		return Fault{}, fmt.Errorf("fault %q: %w", brief(text), err)
	}
	return f, nil
}

// MustFault is ParseFault for texts in source code: it panics on a bad one.
func MustFault(text string) Fault {
	f, err := ParseFault(text)
	if err != nil {
		panic(err)
	}
	return f
}

// brief keeps a text that somebody gave at a length that can be printed.
func brief(text string) string {
	if len(text) > 120 {
		return text[:117] + "..."
	}
	return text
}

func parseFault(text string) (Fault, error) {
	target, rest, ok := strings.Cut(text, ":")
	target = strings.TrimSpace(target)
	switch {
	case !ok:
		return Fault{}, errors.New("it has no target; allowed are texts as \"fcm: status 503 share 0.1\"")
	case !slices.Contains(targets(), target):
		return Fault{}, fmt.Errorf("target %q is not allowed; allowed are %s", brief(target), strings.Join(targets(), ", "))
	}
	words := strings.Fields(rest)
	if len(words) == 0 {
		return Fault{}, fmt.Errorf("it has no kind; allowed are %s", strings.Join(kinds(), ", "))
	}
	f := Fault{target: target, kind: kind(words[0])}
	if !slices.Contains(kinds(), words[0]) {
		return Fault{}, fmt.Errorf("kind %q is not allowed; allowed are %s", brief(words[0]), strings.Join(kinds(), ", "))
	}
	f.accepted = acceptedByDefault(f.kind)
	words, err := f.parseValue(words[1:])
	if err != nil {
		return Fault{}, err
	}
	seen := make(map[string]bool)
	for ; len(words) > 0; words = words[2:] {
		name := words[0]
		if len(words) == 1 {
			return Fault{}, fmt.Errorf("option %q has no value", brief(name))
		}
		if seen[name] {
			return Fault{}, fmt.Errorf("option %q is given twice", brief(name))
		}
		seen[name] = true
		if err := f.parseOption(name, words[1]); err != nil {
			return Fault{}, err
		}
	}
	return f, f.check()
}

// parseValue reads the value of kinds that have one, and returns the words after it.
func (f *Fault) parseValue(words []string) ([]string, error) {
	var parse func(string) error
	switch f.kind {
	case kindLatency:
		parse = f.parseLatency
	case kindSlow:
		parse = func(text string) (err error) {
			f.high, err = parseSpan(text)
			return err
		}
	case kindStatus:
		parse = func(text string) (err error) {
			f.status, err = strconv.Atoi(text)
			if err != nil || f.status < 300 || f.status > 599 {
				return errors.New("allowed are 300 to 599")
			}
			return nil
		}
	case kindHuge:
		parse = func(text string) (err error) {
			f.size, err = parseSize(text)
			return err
		}
	case kindNone, kindHang, kindReset, kindGarbage, kindInvalid, kindUndelivered, kindUnreported, kindRefused:
		return words, nil
	}
	if len(words) == 0 {
		words = []string{""}
	}
	if err := parse(words[0]); err != nil {
		return nil, fmt.Errorf("%s %q is not allowed; %w", f.kind, brief(words[0]), err)
	}
	return words[1:], nil
}

func (f *Fault) parseLatency(text string) (err error) {
	low, high, isRange := strings.Cut(text, "-")
	if f.low, err = parseSpan(low); err != nil {
		return err
	}
	f.high = f.low
	if isRange {
		if f.high, err = parseSpan(high); err != nil {
			return err
		}
	}
	if f.high < f.low {
		return errors.New("allowed are ranges whose end is not before their start")
	}
	return nil
}

func (f *Fault) parseOption(name, value string) (err error) {
	wrong := func(allowed string) error {
		return fmt.Errorf("%s %q is not allowed; allowed are %s", name, brief(value), allowed)
	}
	switch name {
	case "share":
		f.share, err = strconv.ParseFloat(value, 64)
		if err != nil || !(f.share > 0 && f.share <= 1) {
			return wrong("numbers above 0, up to 1")
		}
	case "count", "skip":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 1 {
			return wrong("whole numbers from 1")
		}
		if name == "count" {
			f.count = n
		} else {
			f.skip = n
		}
	case "address", "key":
		pattern, err := regexp.Compile(value)
		if err != nil {
			return wrong("regular expressions without blanks")
		}
		if name == "address" {
			f.address = pattern
		} else {
			f.key = pattern
		}
	case "retry-after":
		f.retryAfter, err = time.ParseDuration(value)
		if err != nil || f.retryAfter < time.Second || f.retryAfter > 24*time.Hour || f.retryAfter%time.Second != 0 {
			return wrong("whole seconds from 1s to 24h")
		}
	case "accepted":
		if value != "yes" && value != "no" {
			return wrong("yes, no")
		}
		if !takesAccepted(f.kind) {
			return fmt.Errorf("accepted is not allowed with %s; allowed are status, hang, reset", f.kind)
		}
		f.accepted = value == "yes"
	default:
		return fmt.Errorf("option %q is not allowed; allowed are share, count, skip, address, key, retry-after, accepted", brief(name))
	}
	return nil
}

// check finds what does not go together.
func (f *Fault) check() error {
	forAlimTalk := f.kind == kindUndelivered || f.kind == kindUnreported || f.kind == kindRefused
	aside := f.target == targetToken || f.target == targetReceipts
	switch {
	case forAlimTalk && f.target != string(AlimTalk):
		return fmt.Errorf("%s is not allowed for %s; allowed is %s", f.kind, f.target, AlimTalk)
	case f.kind == kindInvalid && aside:
		return fmt.Errorf("%s is not allowed for %s; allowed are providers and all", f.kind, f.target)
	case f.retryAfter > 0 && f.kind != kindStatus:
		return fmt.Errorf("retry-after is not allowed with %s; allowed is status", f.kind)
	case f.retryAfter > 0 && f.target == string(SMTP):
		return errors.New("retry-after is not allowed for smtp, which has no word for it")
	case f.target == string(SMTP) && f.kind == kindStatus && f.status < 400:
		return fmt.Errorf("status %d is not allowed for smtp; allowed are 400 to 599", f.status)
	case f.target == string(SMTP) && f.kind == kindInvalid && f.key != nil:
		return errors.New("key is not allowed with invalid-address for smtp, where the address comes first; allowed is address")
	case aside && (f.address != nil || f.key != nil):
		return fmt.Errorf("address and key are not allowed for %s, whose calls name none", f.target)
	}
	return nil
}

func parseSpan(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > time.Hour {
		return 0, errors.New("allowed are durations above 0, up to 1h, as 200ms or 2s")
	}
	return d, nil
}

// The units of sizes.
const (
	kilobyte = 1 << 10
	megabyte = 1 << 20
)

func parseSize(text string) (int64, error) {
	number, unit := text, int64(0)
	if n, ok := strings.CutSuffix(text, "KB"); ok {
		number, unit = n, kilobyte
	} else if n, ok := strings.CutSuffix(text, "MB"); ok {
		number, unit = n, megabyte
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || unit == 0 || n < 1 || n*unit > 1024*megabyte {
		return 0, errors.New("allowed are 1KB to 1024MB")
	}
	return n * unit, nil
}

func sizeText(n int64) string {
	if n%megabyte == 0 {
		return fmt.Sprintf("%dMB", n/megabyte)
	}
	return fmt.Sprintf("%dKB", n/kilobyte)
}
