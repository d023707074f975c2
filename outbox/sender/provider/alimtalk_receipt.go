package provider

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/outbox/sender"
)

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
		return s.result(answer.body)
	}
	r.Class, r.Receipt = sender.Pending, receipt
	return r
}

// result reads the result of a message.
func (s *alimtalkClient) result(body []byte) sender.Result {
	var said struct {
		RequestCode string `json:"requestStatusCode"`
		RequestName string `json:"requestStatusName"`
		Code        string `json:"messageStatusCode"`
		Name        string `json:"messageStatusName"`
	}
	_ = json.Unmarshal(body, &said) // an unreadable body means pending
	switch {
	case said.Name == "success":
		return sender.Result{Class: sender.Accepted, Code: keptCode(said.Code)}
	case said.Name == "fail":
		return s.failed(said.Code, "the provider could not deliver the message")
	case said.RequestName == "fail":
		return s.failed(said.RequestCode, "the provider refused the message")
	}
	return sender.Result{Class: sender.Pending, Code: keptCode(said.Code), Detail: "the provider has no result yet"}
}
