package snstest

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/outboxkit/outbox-go/internal/testing/sqstest"
)

// Prefix is what the ARNs of the topics begin with.
const Prefix = "arn:aws:sns:eu-west-1:000000000000:"

// MaxMessage is how many bytes a topic takes by default: of a message, and of all messages of a request.
const MaxMessage = 256 << 10

// Server is a server with topics. It speaks the query protocol of SNS. A topic keeps messages as a queue
// of [sqstest] does.
type Server struct {
	dir string

	mu     sync.Mutex
	topics map[string]*sqstest.Queue // by ARN
}

// New makes a server that keeps the topics in a folder. The names are the ends of ARNs.
func New(dir string, topics ...string) (*Server, error) {
	s := &Server{dir: dir, topics: map[string]*sqstest.Queue{}}
	for _, name := range topics {
		if err := s.Create(name, MaxMessage); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Create makes a topic with a MaximumMessageSize.
func (s *Server) Create(name string, maximumMessageSize int) error {
	q, err := sqstest.Open(s.dir, name, maximumMessageSize, maximumMessageSize)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topics[Prefix+name] = q
	return nil
}

func (s *Server) topic(arn string) *sqstest.Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topics[arn]
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		Fail(w, http.StatusBadRequest, "MalformedQueryString", err.Error())
		return
	}
	switch form := r.PostForm; {
	case r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" || form.Get("Version") != "2010-03-31":
		Fail(w, http.StatusBadRequest, "InvalidAction", "This server speaks the query protocol of 2010-03-31 alone.")
	case !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential="):
		Fail(w, http.StatusForbidden, "MissingAuthenticationToken", "Request is missing Authentication Token")
	case form.Get("Action") == "ListTopics":
		succeed(w, "<ListTopicsResponse><ListTopicsResult><Topics/></ListTopicsResult></ListTopicsResponse>")
	case form.Get("Action") == "PublishBatch":
		s.publishBatch(w, form)
	default:
		Fail(w, http.StatusBadRequest, "InvalidAction", "The action "+form.Get("Action")+" is not valid for this web service.")
	}
}

// entry is a message of a request.
type entry struct {
	id      string
	message sqstest.Message
	size    int // how many bytes count
}

// entries are the messages of a request, or the code and the text with which SNS refuses the request.
func entries(form url.Values) (list []entry, code, text string) {
	for n := 1; ; n++ {
		field := func(name string) string {
			return form.Get(fmt.Sprintf("PublishBatchRequestEntries.member.%d.%s", n, name))
		}
		if field("Id") == "" {
			return list, "", ""
		}
		e := entry{id: field("Id"), message: sqstest.Message{
			Body: field("Message"), Attributes: map[string]string{}, Group: field("MessageGroupId"), Deduplication: field("MessageDeduplicationId"),
		}}
		e.size = len(e.message.Body)
		for i := 1; ; i++ {
			attribute := fmt.Sprintf("MessageAttributes.entry.%d.", i)
			name, value := field(attribute+"Name"), field(attribute+"Value.StringValue")
			if name == "" {
				break
			}
			if kind := field(attribute + "Value.DataType"); kind != "String" {
				return nil, "ParameterValueInvalid", fmt.Sprintf("The message attribute '%s' has an invalid message attribute type %q.", name, kind)
			}
			e.message.Attributes[name] = value
			e.size += len(name) + len("String") + len(value)
		}
		list = append(list, e)
	}
}

var entryID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// check returns the code and the text with which SNS refuses a whole request.
func check(list []entry, most int) (code, text string) {
	const maxEntries = 10
	switch {
	case len(list) == 0:
		return "EmptyBatchRequest", "The batch request doesn't contain any entries."
	case len(list) > maxEntries:
		return "TooManyEntriesInBatchRequest", "The batch request contains more entries than permissible."
	}
	seen, total := map[string]bool{}, 0
	for _, e := range list {
		if !entryID.MatchString(e.id) {
			return "InvalidBatchEntryId", "The Id of a batch entry in a batch request doesn't abide by the specification."
		}
		if seen[e.id] {
			return "BatchEntryIdsNotDistinct", "Two or more batch entries in the request have the same Id."
		}
		seen[e.id] = true
		total += e.size
	}
	if total > most {
		return "BatchRequestTooLong", fmt.Sprintf("The length of all the batch messages put together is %d, and more than the limit of %d.", total, most)
	}
	return "", ""
}

// Failed is the answer for a message that was not stored.
type Failed struct {
	Code        string
	ID          string `xml:"Id"`
	Message     string
	SenderFault bool
}

// Stored is the answer for a message that was stored.
type Stored struct {
	ID        string `xml:"Id"`
	MessageID string `xml:"MessageId"`
}

func (s *Server) publishBatch(w http.ResponseWriter, form url.Values) {
	topic := s.topic(form.Get("TopicArn"))
	if topic == nil {
		Fail(w, http.StatusNotFound, "NotFound", "Topic does not exist")
		return
	}
	list, code, text := entries(form)
	if code == "" {
		code, text = check(list, topic.MaxRequest)
	}
	if code != "" {
		Fail(w, http.StatusBadRequest, code, text)
		return
	}
	var stored []Stored
	var failed []Failed
	for _, e := range list {
		if code, text := topic.Check(e.message, e.size); code != "" {
			failed = append(failed, Failed{"InvalidParameter", e.id, "Invalid parameter: " + text, true})
			continue
		}
		id, err := topic.Store(e.message)
		if err != nil {
			failed = append(failed, Failed{"InternalError", e.id, err.Error(), false})
			continue
		}
		stored = append(stored, Stored{e.id, id})
	}
	Answer(w, stored, failed)
}

// Answer answers a PublishBatch.
func Answer(w http.ResponseWriter, stored []Stored, failed []Failed) {
	text, err := xml.Marshal(struct {
		XMLName    xml.Name `xml:"http://sns.amazonaws.com/doc/2010-03-31/ PublishBatchResponse"`
		Successful []Stored `xml:"PublishBatchResult>Successful>member"`
		Failed     []Failed `xml:"PublishBatchResult>Failed>member"`
		RequestID  string   `xml:"ResponseMetadata>RequestId"`
	}{Successful: stored, Failed: failed, RequestID: requestID})
	if err != nil {
		panic(err)
	}
	succeed(w, string(text))
}

const requestID = "00000000-0000-4000-8000-000000000000"

func succeed(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/xml")
	_, _ = w.Write([]byte(text))
}

// Fail answers with an error of the service.
func Fail(w http.ResponseWriter, status int, code, message string) {
	text, err := xml.Marshal(struct {
		XMLName   xml.Name `xml:"http://sns.amazonaws.com/doc/2010-03-31/ ErrorResponse"`
		Type      string   `xml:"Error>Type"`
		Code      string   `xml:"Error>Code"`
		Message   string   `xml:"Error>Message"`
		RequestID string   `xml:"RequestId"`
	}{Type: "Sender", Code: code, Message: message, RequestID: requestID})
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
