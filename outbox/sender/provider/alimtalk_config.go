package provider

import (
	"fmt"
	"regexp"
	"sync"

	"github.com/belfryhq/belfry/outbox/sender"
)

// alimtalkMaxBatch is the provider's maximum number of messages per call.
const alimtalkMaxBatch = 100

// AlimtalkConfig configures delivery as KakaoTalk AlimTalk through NAVER Cloud's SENS. The provider accepts up
// to 100 messages per call and reports their results later.
//
//	POST …/messages ─► 202, per message: A000        pending, with a receipt
//	                              another code       permanent, or invalid address
//	                   400 for several messages      repeated in halves, until the invalid one is alone
//	                   other answers, no answer      for all messages of the call, see httpClient
//	GET …/messages/{receipt} ─► success              accepted
//	                            fail                 permanent, or invalid address
//	                            processing, anything pending
//
// Requests, headers and codes follow NAVER Cloud's reference:
// https://api.ncloud-docs.com/docs/en/sens-alimtalk-send,
// https://api.ncloud-docs.com/docs/en/sens-alimtalk-get and
// https://api.ncloud-docs.com/docs/en/sens-overview.
//
// A channel's address is a telephone number: +82 10 1234 5678, or digits that CountryCode completes. The
// message's body is the content, which must match the template that Kakao approved; its title is not sent. The
// template's code is TemplateCode, or the member template_code of the message's data. The member alimtalk of
// data may contain the other parts of a template: title, headerContent, itemHighlight, item, buttons.
//
// # Invariants
//
//  1. The provider has no field for an idempotency key, so two attempts are two messages. Only the relay repeats
//     an attempt, and all messages of a call are unknown if its answer was lost or unreadable.
//  2. An invalid message does not affect other messages of its call: a call that the provider rejects as a bad
//     request, and of which it accepted nothing, is repeated in halves.
//  3. The provider's own failover to SMS is switched off in every message, because the route's next medium would
//     notify the recipient again.
//  4. Calls are signed immediately before they are sent; the provider rejects timestamps that are five minutes
//     off.
//
// # Not guaranteed
//
// Immediate results of Receipts: results take seconds, and the provider deletes them after some months. The
// provider's scheduled messages (reserveTime) are not used.
type AlimtalkConfig struct {
	HTTP HTTPConfig `mapstructure:",squash"`
	// Endpoint is the API's URL, without the path.
	Endpoint string `mapstructure:"endpoint"`
	// ServiceID names the Biz Message service, such as ncp:kkobizmsg:kr:123456789012:name.
	ServiceID string `mapstructure:"service_id"`
	// AccessKey and SecretKey belong to an account with permission to use SENS.
	AccessKey     string `mapstructure:"access_key"`
	SecretKey     string `mapstructure:"secret_key"`
	SecretKeyFile string `mapstructure:"secret_key_file"`
	// PlusFriendID is the id of the KakaoTalk channel that sends, with its @.
	PlusFriendID string `mapstructure:"plus_friend_id"`
	// TemplateCode is the template of messages whose data has no template_code. If it is empty, such messages
	// are refused.
	TemplateCode string `mapstructure:"template_code"`
	// CountryCode is the country code of numbers without a +.
	CountryCode string `mapstructure:"country_code"`
	// MaxBatch is the maximum number of messages per call, at most 100.
	MaxBatch int `mapstructure:"max_batch"`
	// InvalidAddressCodes are the provider's codes, of a request or a result, for numbers that cannot receive
	// AlimTalk.
	InvalidAddressCodes []string `mapstructure:"invalid_address_codes"`
}

// DefaultAlimtalk returns the settings of the public service, with Korean numbers. 3019 is the code of a number
// without KakaoTalk.
func DefaultAlimtalk() *AlimtalkConfig {
	return &AlimtalkConfig{
		Endpoint: "https://sens.apigw.ntruss.com", CountryCode: "82",
		MaxBatch: alimtalkMaxBatch, InvalidAddressCodes: []string{"3019"},
	}
}

var (
	alimtalkService = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9:_.-]{1,200}$`) })
	countryShape    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[1-9][0-9]{0,2}$`) })
	alimtalkCode    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,30}$`) })
)

// validate implements Config.
func (c *AlimtalkConfig) validate(p *sender.ValidationErrors) {
	check := p.Check
	_, err := parseURL(c.Endpoint, true)
	check(err == nil, "endpoint", "%v; allowed values: a URL such as https://sens.apigw.ntruss.com", err)
	check(alimtalkService().MatchString(c.ServiceID), "service_id",
		"%q is not allowed; allowed values: an id such as ncp:kkobizmsg:kr:123456789012:name", c.ServiceID)
	check(c.AccessKey != "", "access_key", "is empty; set an account's access key")
	check(c.SecretKey != "" || c.SecretKeyFile != "", "secret_key", "is empty; set an account's secret key, or a file in secret_key_file")
	check(c.SecretKey == "" || c.SecretKeyFile == "", "secret_key", "is set, and so is secret_key_file; set only one")
	check(c.PlusFriendID != "" && len(c.PlusFriendID) <= 100, "plus_friend_id",
		"%q is not allowed; allowed values: a KakaoTalk channel's id, such as @name", c.PlusFriendID)
	check(c.TemplateCode == "" || alimtalkCode().MatchString(c.TemplateCode), "template_code",
		"%q is not allowed; allowed values: 1 to 30 letters, digits, _ and -, or nothing", c.TemplateCode)
	check(countryShape().MatchString(c.CountryCode), "country_code", "%q is not allowed; allowed values: 1 to 3 digits, such as 82",
		c.CountryCode)
	check(c.MaxBatch >= 1 && c.MaxBatch <= alimtalkMaxBatch, "max_batch", "%d is not allowed; allowed values: 1 to %d", c.MaxBatch,
		alimtalkMaxBatch)
	for i, code := range c.InvalidAddressCodes {
		check(alimtalkCode().MatchString(code), fmt.Sprintf("invalid_address_codes[%d]", i),
			"%q is not allowed; allowed values: codes such as 3019", code)
	}
	c.HTTP.validate(p)
}
