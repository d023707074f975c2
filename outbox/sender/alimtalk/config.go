package alimtalk

import (
	"fmt"
	"regexp"
	"sync"

	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/httpcall"
)

// MaxBatch is how many messages the provider takes in a call.
const MaxBatch = 100

// Config sets how AlimTalk is sent. DefaultConfig has every default.
type Config struct {
	HTTP httpcall.Config `mapstructure:",squash"`
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

// DefaultConfig is the public service, with Korean numbers. 3019 says that nobody uses
// KakaoTalk by the number.
func DefaultConfig() Config {
	return Config{
		Endpoint: "https://sens.apigw.ntruss.com", CountryCode: "82",
		MaxBatch: MaxBatch, InvalidAddressCodes: []string{"3019"},
	}
}

var (
	serviceID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9:_.-]{1,200}$`) })
	country   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[1-9][0-9]{0,2}$`) })
	codeText  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,30}$`) })
)

// Validate returns every problem at once, each with its key path below path, or nil.
// It reads no file.
func (c Config) Validate(path string) error {
	problems := sender.Problems{Path: path}
	check := problems.Check
	_, err := httpcall.ParseURL(c.Endpoint, true)
	check(err == nil, "endpoint", "%v; allowed is a URL such as https://sens.apigw.ntruss.com", err)
	check(serviceID().MatchString(c.ServiceID), "service_id", "%q is not allowed; allowed is an id such as ncp:kkobizmsg:kr:123456789012:name", c.ServiceID)
	check(c.AccessKey != "", "access_key", "is empty; allowed is an account's access key")
	check(c.SecretKey != "" || c.SecretKeyFile != "", "secret_key", "is empty; allowed is an account's secret key, or a file in secret_key_file")
	check(c.SecretKey == "" || c.SecretKeyFile == "", "secret_key", "is set, and so is secret_key_file; allowed is one of them")
	check(c.PlusFriendID != "" && len(c.PlusFriendID) <= 100, "plus_friend_id", "%q is not allowed; allowed is a KakaoTalk channel's id, such as @name", c.PlusFriendID)
	check(c.TemplateCode == "" || codeText().MatchString(c.TemplateCode), "template_code", "%q is not allowed; allowed are 1 to 30 letters, digits, _ and -, or nothing", c.TemplateCode)
	check(country().MatchString(c.CountryCode), "country_code", "%q is not allowed; allowed are 1 to 3 digits, such as 82", c.CountryCode)
	check(c.MaxBatch >= 1 && c.MaxBatch <= MaxBatch, "max_batch", "%d is not allowed; allowed are 1 to %d", c.MaxBatch, MaxBatch)
	for i, code := range c.InvalidAddressCodes {
		check(codeText().MatchString(code), fmt.Sprintf("invalid_address_codes[%d]", i), "%q is not allowed; allowed are codes such as 3019", code)
	}
	return problems.Err(c.HTTP.Validate(path))
}
