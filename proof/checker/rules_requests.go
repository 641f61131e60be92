package checker

import (
	"maps"
	"net/http"
	"slices"
)

// requests are the requests with an Idempotency-Key.
type requests struct {
	sent       int
	executions []*transaction
	answers    []*Request
}

// arrangeRequest arranges a record of a request.
func (f *facts) arrangeRequest(r Record) {
	if r.Request == nil {
		return
	}
	k := f.requests[r.Request.Key]
	if k == nil {
		k = &requests{}
		f.requests[r.Request.Key] = k
	}
	switch r.Op {
	case OpSent:
		k.sent++
	case OpHandled:
		f.txs[r.Tx].asks = r.Request.Asks
		k.executions = append(k.executions, f.txs[r.Tx])
	case OpAnswered:
		if r.Request.Status != 0 {
			k.answers = append(k.answers, r.Request)
		}
	default:
	}
}

// standing are the executions that stand.
func (k *requests) standing(f *facts) (standing []*transaction) {
	for _, tx := range k.executions {
		if f.Orders[tx.id] {
			standing = append(standing, tx)
		}
	}
	return standing
}

// successes are the answers that say that a request was done, with the answer.
func (k *requests) successes() (successes []*Request) {
	for _, a := range k.answers {
		if a.Succeeded() {
			successes = append(successes, a)
		}
	}
	return successes
}

// count adds the requests to the report's figures.
func (k *requests) count(r *Report) {
	r.Keys++
	r.Tries += k.sent
	r.Answers += len(k.answers)
	for _, a := range k.answers {
		switch {
		case a.Succeeded():
			r.Successes++
			if a.Replayed {
				r.Repeated++
			}
		case a.Status < http.StatusInternalServerError:
			r.Refused++
		}
	}
}

// checkRequests checks the rules of requests with keys.
func (f *facts) checkRequests() {
	for _, key := range slices.Sorted(maps.Keys(f.requests)) {
		k := f.requests[key]
		if k.sent == 0 {
			f.brokenKey(RuleRecords, key, "", "a server executed a request that no client sent")
		}
		standing, successes := k.standing(f), k.successes()
		if len(standing) > 1 {
			f.brokenKey(RuleRequestOnce, key, "", "%d executions stand, such as %s and %s", len(standing), standing[0].id, standing[1].id)
		}
		if len(successes) == 0 {
			f.brokenKey(RuleRequestEnd, key, "", "it was sent %d times, and no answer was a success", k.sent)
		}
		f.checkAnswers(key, k)
		for _, a := range k.answers {
			f.checkAnswer(key, a, standing)
		}
	}
}

// checkAnswers compares the successful answers of a key with each other.
func (f *facts) checkAnswers(key string, k *requests) {
	var first *Request // without the header
	for _, a := range k.successes() {
		if all := k.successes(); a.Status != all[0].Status || a.Answer != all[0].Answer {
			f.brokenKey(RuleRequestAnswer, key, "", "it was answered %d %s, and %d %s", all[0].Status, all[0].Answer, a.Status, a.Answer)
			return
		}
		if a.Replayed {
			continue
		}
		if first != nil {
			f.brokenKey(RuleRequestAnswer, key, "", "two answers do not have the header Idempotent-Replayed")
			return
		}
		first = a
	}
}

// checkAnswer holds an answer against the executions that stand.
func (f *facts) checkAnswer(key string, a *Request, standing []*transaction) {
	done := a.Succeeded() || a.Status == http.StatusConflict && a.Replayed
	asked := func(tx *transaction) bool { return tx.asks == a.Asks }
	switch {
	case done && len(standing) == 0:
		f.brokenKey(RuleRequestOnce, key, "", "it was answered %d as done, and no execution stands", a.Status)
	case done && !slices.ContainsFunc(standing, asked):
		f.brokenKey(RuleRequestOther, key, "", "a request for %s was answered %d as done, and the key is of a request for %s", a.Asks, a.Status, standing[0].asks)
	case a.Succeeded() && !slices.ContainsFunc(standing, func(tx *transaction) bool { return tx.id == a.Answer }):
		f.brokenKey(RuleRequestAnswer, key, "", "it was answered %d %s, and %s stands", a.Status, a.Answer, standing[0].id)
	case a.Status == http.StatusUnprocessableEntity && (len(standing) == 0 || slices.ContainsFunc(standing, asked)):
		f.brokenKey(RuleRequestOther, key, "", "a request for %s was refused as a different request, and no different request has the key", a.Asks)
	case !done && a.Status != http.StatusConflict && a.Status != http.StatusUnprocessableEntity && a.Status < http.StatusInternalServerError:
		f.brokenKey(RuleRecords, key, "", "it was answered %d, which no server of the run answers", a.Status)
	}
}
