package amazon

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"unicode/utf8"

	"github.com/outboxkit/outbox-go/relay"
)

// Names of the attributes that a message has beside the attributes of CloudEvents.
const (
	AttributeMessageID   = "message-id"
	AttributeContentType = "content-type"
	// AttributeHeaders is a JSON object with the event's headers and ce-partitionkey, for which the
	// message has no room.
	AttributeHeaders = "headers"
	// DataType is the type of each attribute. The name counts towards the size of a message.
	DataType = "String"

	attributePrefix = "ce-"
)

// Limits of both services. SNS takes more attributes, and drops a message with more for a queue that gets
// messages in raw form.
const (
	maxEntries    = 10 // messages of a request
	maxAttributes = 10
	maxToken      = 128 // characters of a group id or a deduplication id
)

// Message is a message as the services take it.
type Message struct {
	Body       string
	Attributes []relay.Header
	// Group and Deduplication are the ids of a FIFO queue or topic, else empty.
	Group, Deduplication string

	size int // how many bytes count towards the limits
}

// message makes a message, or returns an error of class [relay.ErrRefused].
func (s *Service) message(m *relay.Message) (Message, error) {
	made := Message{Body: string(m.Body), Attributes: attributes(m)}
	if made.Body == "" {
		return made, fmt.Errorf("%w: the body is empty, which %s does not take; write a payload, or take relay.Structured", relay.ErrRefused, s.Name)
	}
	if c, wrong := invalid(made.Body); wrong {
		return made, fmt.Errorf("%w: the body has %s, which %s does not take; take relay.Structured, which has bytes in base64", relay.ErrRefused, c, s.Name)
	}
	made.size = len(made.Body)
	for _, a := range made.Attributes {
		if c, wrong := invalid(a.Value); wrong {
			return made, fmt.Errorf("%w: the attribute %q has %s, which %s does not take; take it out, or take relay.Structured", relay.ErrRefused, a.Key, c, s.Name)
		}
		made.size += len(a.Key) + len(DataType) + len(a.Value)
	}
	if made.size > s.MaxBytes {
		return made, fmt.Errorf("%w: a body of %d bytes and attributes of %d; %s takes %d together; store large data elsewhere, and publish where it is",
			relay.ErrRefused, len(made.Body), made.size-len(made.Body), s.Name, s.MaxBytes)
	}
	if strings.HasSuffix(m.Topic, ".fifo") {
		made.Deduplication = token(m.ID)
		made.Group = token(m.Key)
		if m.Key == "" { // a group of its own: the message waits for no other message
			made.Group = made.Deduplication
		}
	}
	return made, nil
}

// divide divides messages into requests, in order. The numbers are indexes of messages.
func (s *Service) divide(messages []Message, indexes []int) (batches [][]int) {
	size := 0
	for n, i := range indexes {
		last := len(batches) - 1
		if n == 0 || len(batches[last]) == maxEntries || size+messages[i].size > s.RequestBytes {
			batches, size = append(batches, nil), 0
			last++
		}
		batches[last] = append(batches[last], i)
		size += messages[i].size
	}
	return batches
}

// attributes are the attributes of a message. Attributes that are empty are left out: the services take
// no empty value.
func attributes(m *relay.Message) []relay.Header {
	list := []relay.Header{{Key: AttributeMessageID, Value: m.ID}, {Key: AttributeContentType, Value: m.ContentType}}
	rest := maps.Clone(m.Headers)
	if rest == nil {
		rest = map[string]string{}
	}
	for _, a := range m.Attributes {
		key := attributePrefix + a.Name
		switch {
		case a.Name == "datacontenttype", a.Value == "": // the content type says it
		case a.Name == "partitionkey", len(list) == maxAttributes-1:
			rest[key] = a.Value
		default:
			list = append(list, relay.Header{Key: key, Value: a.Value})
		}
	}
	if len(rest) == 0 {
		return list
	}
	text, _ := json.Marshal(rest) // a map of texts has no error
	return append(list, relay.Header{Key: AttributeHeaders, Value: escape.Replace(string(text))})
}

// escape escapes the characters that JSON has as they are and that the services do not take.
var escape = strings.NewReplacer("\uFFFE", `\ufffe`, "\uFFFF", `\uffff`)

// invalid returns the first character that is none of XML 1.0. SQS replaces such characters, or
// refuses the message, also if SNS sends it.
func invalid(text string) (problem string, wrong bool) {
	for i, r := range text {
		switch {
		case r == '\t', r == '\n', r == '\r', r >= ' ' && r < utf8.RuneError, r > 0xFFFF:
		case r == utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return fmt.Sprintf("a byte %#02x at %d that is not UTF-8", text[i], i), true
			}
		default:
			return fmt.Sprintf("the character %U at byte %d", r, i), true
		}
	}
	return "", false
}

// token is a group id or a deduplication id: at most 128 printable characters of ASCII without a
// space. Any other text is replaced with its SHA-256 in hexadecimal.
func token(text string) string {
	plain := len(text) <= maxToken
	for _, c := range []byte(text) {
		plain = plain && c > ' ' && c < 0x7f
	}
	if plain {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
