package provider

import (
	"fmt"
	"regexp"
	"sync"

	"github.com/belfryhq/belfry/outbox/sender"
)

// alimtalkMaxBatch is how many messages the provider takes in a call.
const alimtalkMaxBatch = 100

// AlimtalkConfig sets how messages are delivered as KakaoTalk AlimTalk through NAVER
// Cloud's SENS. The provider takes up to 100 messages in a call and says later what became
// of each.
//
//	POST …/messages ─► 202, per message: A000        pending, with a receipt
//	                              another code       permanent, or invalid address
//	                   400 for several messages      halves, until the bad one is alone
//	                   other answers, no answer      for all of the call, as httpClient says
//	GET …/messages/{receipt} ─► success              accepted
//	                            fail                 permanent, or invalid address
//	                            processing, anything pending
//
// Requests, headers and codes are those of NAVER Cloud's reference:
// https://api.ncloud-docs.com/docs/en/sens-alimtalk-send,
// https://api.ncloud-docs.com/docs/en/sens-alimtalk-get and
// https://api.ncloud-docs.com/docs/en/sens-overview.
//
// A channel's address is a telephone number: +82 10 1234 5678, or digits that
// CountryCode completes. The message's body is the content, which must be what
// Kakao approved as the template; its title is not sent. The template's code is
// TemplateCode, or the member template_code of the message's data; the data's
// member alimtalk may hold what a template asks for beside its content: title,
// headerContent, itemHighlight, item, buttons.
//
// # Invariants
//
//  1. The provider has no place for an idempotency key: two attempts are two messages. An
//     attempt is therefore repeated only as the relay decides, and unknown is said
//     whenever a call's answer was lost or could not be read, of all its messages.
//  2. A message is never refused for its neighbour's fault: a call that the provider
//     refuses as a bad request is made again in halves. It took nothing.
//  3. The provider's own failover to SMS is switched off in every message: the route
//     decides what comes next, or a person would be told twice.
//  4. Calls are signed at the time they are made; the provider refuses a timestamp that is
//     five minutes off.
//
// # What it does not promise
//
// That Receipts knows soon: results take seconds, and are gone from the provider after
// some months. Scheduled messages of the provider (reserveTime) are not used.
type AlimtalkConfig struct {
	HTTP HTTPConfig `mapstructure:",squash"`
	// Endpoint is the API's URL, without the path.
	Endpoint string `mapstructure:"endpoint"`
	// ServiceID names the Biz Message service, as ncp:kkobizmsg:kr:123456789012:name.
	ServiceID string `mapstructure:"service_id"`
	// AccessKey and SecretKey are an account's, with leave to use SENS.
	AccessKey     string `mapstructure:"access_key"`
	SecretKey     string `mapstructure:"secret_key"`
	SecretKeyFile string `mapstructure:"secret_key_file"`
	// PlusFriendID names the KakaoTalk channel that speaks, with its @.
	PlusFriendID string `mapstructure:"plus_friend_id"`
	// TemplateCode is the template of messages whose data has no template_code. Empty:
	// such messages are refused.
	TemplateCode string `mapstructure:"template_code"`
	// CountryCode is that of numbers without a +.
	CountryCode string `mapstructure:"country_code"`
	// MaxBatch is how many messages go into one call, at most 100.
	MaxBatch int `mapstructure:"max_batch"`
	// InvalidAddressCodes are the provider's codes, of a request or a result, that mean
	// that the number is no good for AlimTalk.
	InvalidAddressCodes []string `mapstructure:"invalid_address_codes"`
}

// DefaultAlimtalk is the public service, with Korean numbers. 3019 says that nobody uses
// KakaoTalk by the number.
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
func (c *AlimtalkConfig) validate(p *sender.Problems) {
	check := p.Check
	_, err := parseURL(c.Endpoint, true)
	check(err == nil, "endpoint", "%v; allowed is a URL such as https://sens.apigw.ntruss.com", err)
	check(alimtalkService().MatchString(c.ServiceID), "service_id", "%q is not allowed; allowed is an id such as ncp:kkobizmsg:kr:123456789012:name", c.ServiceID)
	check(c.AccessKey != "", "access_key", "is empty; allowed is an account's access key")
	check(c.SecretKey != "" || c.SecretKeyFile != "", "secret_key", "is empty; allowed is an account's secret key, or a file in secret_key_file")
	check(c.SecretKey == "" || c.SecretKeyFile == "", "secret_key", "is set, and so is secret_key_file; allowed is one of them")
	check(c.PlusFriendID != "" && len(c.PlusFriendID) <= 100, "plus_friend_id", "%q is not allowed; allowed is a KakaoTalk channel's id, such as @name", c.PlusFriendID)
	check(c.TemplateCode == "" || alimtalkCode().MatchString(c.TemplateCode), "template_code", "%q is not allowed; allowed are 1 to 30 letters, digits, _ and -, or nothing", c.TemplateCode)
	check(countryShape().MatchString(c.CountryCode), "country_code", "%q is not allowed; allowed are 1 to 3 digits, such as 82", c.CountryCode)
	check(c.MaxBatch >= 1 && c.MaxBatch <= alimtalkMaxBatch, "max_batch", "%d is not allowed; allowed are 1 to %d", c.MaxBatch, alimtalkMaxBatch)
	for i, code := range c.InvalidAddressCodes {
		check(alimtalkCode().MatchString(code), fmt.Sprintf("invalid_address_codes[%d]", i), "%q is not allowed; allowed are codes such as 3019", code)
	}
	c.HTTP.validate(p)
}
