package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/outbox/sender"
)

// accepted reads the answer to an accepted call, message by message.
func (s *alimtalkClient) accepted(answer httpAnswer, parts []alimtalkPart, results []sender.Result) {
	said := alimtalkReplies(answer.body)
	used := make([]bool, len(said))
	for i, p := range parts {
		at := matchReply(said, used, i, p.to.to)
		if at < 0 {
			results[p.at] = answer.as(sender.Unknown, strconv.Itoa(answer.status), "the provider's answer has no result for the message")
			continue
		}
		used[at] = true
		m := said[at]
		switch {
		case m.Code != "A000":
			results[p.at] = s.failed(m.Code, "the provider refused the message")
		case m.ID == "":
			results[p.at] = sender.Result{Class: sender.Accepted, Code: m.Code}
		default:
			results[p.at] = sender.Result{Class: sender.Pending, Code: m.Code, Receipt: m.ID}
		}
	}
}

// alimtalkReply is the provider's result for one message of a call.
type alimtalkReply struct {
	ID   string `json:"messageId"`
	To   string `json:"to"`
	Code string `json:"requestStatusCode"`
}

// alimtalkReplies returns the messages of an answer. Of a truncated answer it returns the complete ones.
func alimtalkReplies(body []byte) []alimtalkReply {
	var said []alimtalkReply
	dec := json.NewDecoder(bytes.NewReader(body))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return said
		}
		if name != "messages" {
			var other json.RawMessage
			if dec.Decode(&other) != nil {
				return said
			}
			continue
		}
		if start, err := dec.Token(); err != nil || start != json.Delim('[') {
			return said
		}
		for dec.More() {
			var m alimtalkReply
			if dec.Decode(&m) != nil {
				return said
			}
			said = append(said, m)
		}
		return said
	}
	return said
}

// sameNumber reports whether two texts are one number, with or without its country code and the zero before it.
func sameNumber(a, b string) bool {
	a, b = strings.TrimLeft(a, "+0"), strings.TrimLeft(b, "+0")
	if len(a) < len(b) {
		a, b = b, a
	}
	return a == b || len(b) >= 7 && len(a)-len(b) <= 3 && strings.HasSuffix(a, b) // a country code has up to three digits
}

// matchReply returns the index of the reply to the part at i, which was sent to the number to: the reply with
// the same index if it has that number, otherwise the first unused one that has, or -1.
func matchReply(said []alimtalkReply, used []bool, i int, to string) int {
	fits := func(at int) bool {
		return at < len(said) && !used[at] && said[at].Code != "" && (sameNumber(said[at].To, to) || said[at].To == "" && at == i)
	}
	if fits(i) {
		return i
	}
	for at := range said {
		if fits(at) {
			return at
		}
	}
	return -1
}

// failed returns the result of an error code.
func (s *alimtalkClient) failed(code, detail string) sender.Result {
	class := sender.Permanent
	if slices.Contains(s.cfg.InvalidAddressCodes, code) {
		class = sender.InvalidAddress
	}
	return sender.Result{Class: class, Code: keptCode(code), Detail: detail}
}

// alimtalkRefusal reads the answer to a rejected call.
func alimtalkRefusal(answer httpAnswer) sender.Result {
	var said struct {
		Error struct {
			Code string `json:"errorCode"`
		} `json:"error"`
	}
	_ = json.Unmarshal(answer.body, &said) // the status is enough
	r := answer.result()
	if code := keptCode(said.Error.Code); code != "" {
		r.Code += " " + code
	}
	return r
}

// alimtalkReceiptCalls is the number of concurrent calls for receipts.
const alimtalkReceiptCalls = 8

// Receipts implements sender.ReceiptReader.
func (s *alimtalkClient) Receipts(ctx context.Context, receipts []string) []sender.Result {
	results := make([]sender.Result, len(receipts))
	var calls errgroup.Group
	calls.SetLimit(alimtalkReceiptCalls)
	for i, receipt := range receipts {
		calls.Go(func() error {
			results[i] = s.receipt(ctx, receipt)
			return nil
		})
	}
	_ = calls.Wait() // they return no errors
	return results
}

// receipt requests one result. Any failure leaves it pending.
func (s *alimtalkClient) receipt(ctx context.Context, receipt string) sender.Result {
	answer, err := s.do(ctx, http.MethodGet, "/"+url.PathEscape(receipt), nil)
	var r sender.Result
	switch {
	case err != nil:
		r = failureOf(err)
	case answer.status != http.StatusOK:
		r = alimtalkRefusal(answer)
	default:
		return s.result(answer.body, receipt)
	}
	r.Class, r.Receipt = sender.Pending, receipt
	return r
}

// result reads the result of the message of a receipt.
func (s *alimtalkClient) result(body []byte, receipt string) sender.Result {
	var said struct {
		ID          string `json:"messageId"`
		RequestCode string `json:"requestStatusCode"`
		RequestName string `json:"requestStatusName"`
		Code        string `json:"messageStatusCode"`
		Name        string `json:"messageStatusName"`
	}
	_ = json.Unmarshal(body, &said) // an unreadable body means pending
	switch {
	case said.ID != "" && said.ID != receipt:
		return sender.Result{Class: sender.Pending, Detail: "the provider answered with the result of another message"}
	case said.Name == "success":
		return sender.Result{Class: sender.Accepted, Code: keptCode(said.Code)}
	case said.Name == "fail":
		return s.failed(said.Code, "the provider could not deliver the message")
	case said.RequestName == "fail":
		return s.failed(said.RequestCode, "the provider refused the message")
	}
	return sender.Result{Class: sender.Pending, Code: keptCode(said.Code), Detail: "the provider has no result yet"}
}
