package amazon

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/outboxkit/outbox-go/relay"
)

// fault is an error with which the service answered, as the SDK has it.
type fault interface {
	ErrorCode() string
	ErrorMessage() string
}

// response is an error of the SDK that has the status of the answer.
type response interface{ HTTPStatusCode() int }

// Codes of SQS, of SNS and of the protocols, without the prefix of SQS.
var (
	unroutable = []string{"NonExistentQueue", "QueueDoesNotExist", "QueueDeletedRecently", "InvalidAddress", "NotFound"}
	refused    = []string{
		"BatchRequestTooLong", "InvalidMessageContents", "InvalidParameterValue", "InvalidAttributeName", "InvalidAttributeValue",
		"InvalidParameter", "ParameterValueInvalid", "ValidationException",
	}
	away = []string{
		// The service has too much to do.
		"OverLimit", "RequestThrottled", "RequestThrottledException", "Throttled", "Throttling", "ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded",
		"KmsThrottled", "KMSThrottling",
		// The service has a fault.
		"InternalError", "InternalFailure", "ServiceUnavailable", "RequestTimeout",
		// The key of the queue or topic cannot be used until an operator changes it.
		"KmsDisabled", "KmsInvalidState", "KMSDisabled", "KMSInvalidState",
		// The service does not accept the credentials, or the clock.
		"ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "InvalidClientTokenId", "InvalidAccessKeyId", "InvalidSecurity", "InvalidSignatureException",
		"MissingAuthenticationToken", "MissingAuthenticationTokenException", "OptInRequired", "RequestExpired", "SignatureDoesNotMatch", "UnrecognizedClientException",
	}
	denied = []string{"AccessDenied", "AccessDeniedException", "AuthorizationError"}
)

// most is the most bytes of the service's text in an error.
const most = 500

// Classify says which kind of failure an error of a request is.
func Classify(err error) error {
	var f fault
	if !errors.As(err, &f) { // the connection's, a context's, or credentials that the client does not get
		return fmt.Errorf("%w: %w", relay.ErrUnavailable, err)
	}
	var r response
	if errors.As(err, &r) && (r.HTTPStatusCode() >= http.StatusInternalServerError || r.HTTPStatusCode() == http.StatusTooManyRequests) {
		return fmt.Errorf("%w: status %d: %s", relay.ErrUnavailable, r.HTTPStatusCode(), text(f.ErrorCode(), f.ErrorMessage()))
	}
	return classify(f.ErrorCode(), f.ErrorMessage())
}

// err says which kind of failure the answer for a message of a request is.
func (a *Answer) err() error {
	switch {
	case !a.Failed:
		return nil
	case !a.SenderFault:
		return fmt.Errorf("%w: %s", relay.ErrUnavailable, text(a.Code, a.Message))
	default:
		return classify(a.Code, a.Message)
	}
}

// errNoAnswer is the error of a message for which a request's answer has neither success nor failure.
var errNoAnswer = fmt.Errorf("%w: the answer does not have the message", relay.ErrUnavailable)

func classify(code, message string) error {
	is := func(codes []string) bool { return slices.Contains(codes, bare(code)) }
	switch {
	case is(unroutable), bare(code) == "InvalidParameter" && strings.Contains(message, "TopicArn"): // a topic of another region
		return fmt.Errorf("%w: %s", relay.ErrUnroutable, text(code, message))
	case is(refused):
		return fmt.Errorf("%w: %s", relay.ErrRefused, text(code, message))
	case is(away):
		return fmt.Errorf("%w: %s", relay.ErrUnavailable, text(code, message))
	default: // such as AccessDenied, which an operator may fix
		return errors.New(text(code, message))
	}
}

func text(code, message string) string { return fmt.Sprintf("%.*s: %.*s", most, code, most, message) }

// IsDenied reports whether the service answered that the account may not make a request. Such a service
// is there, and accepts the credentials.
func IsDenied(err error) bool {
	var f fault
	return errors.As(err, &f) && slices.Contains(denied, bare(f.ErrorCode()))
}

// bare is a code without its prefix, such as "AWS.SimpleQueueService.".
func bare(code string) string { return code[strings.LastIndexByte(code, '.')+1:] }
