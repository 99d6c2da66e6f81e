# Every searchable text of events.json, decoded: the baseline of bench_conversations.py.
.[]
| if .type == "tool_call_response" then (.content | try @base64d catch .)
  elif .type == "tool_call_request" then
    .name, (.arguments | walk(if type == "string" then (try @base64d catch .) else . end) | tojson)
  elif .type == "chat_request" then .content
  elif .type == "chat_response" then (.message // .reasoning // (.data | tojson))
  elif .type == "inquiry_request" then .question.text
  else empty end
