"""The data plane: an OpenAI-shaped HTTP surface, and behind it two engine calls for every answer.

This room decides who may enter, which prefill pod makes the prompt's KV and which decode pod continues from it, and
then moves bytes. It must not know what happens inside an engine, write anything to the API server, or ever let a
decoder see a prompt without a complete hand-over. Its own rooms, from the process down to the words that all share;
imports point downwards, and each room says what it is for::

    server                      wires the parts together
    surface      discovery      paths and clients; where the fleet comes from
    serving                     one request: admit, prefill, decode, resume
    telemetry    dialects       metrics, spans and logs; other APIs as chats
    admission    engines        who may begin and has room; connections to engines
    policies   keys   bodies    pure choices; API keys; what is said, as data
    transport                   HTTP/1.1 over sockets, to both sides
    fleet                       what is known of the fleet, frozen
    errors   settings   trace   words
"""
