"""The data plane: an OpenAI-shaped HTTP surface, and behind it two engine calls for every answer.

This room decides who may enter, which prefill pod makes the prompt's KV and which decode pod continues from it, and
then moves bytes. It must not know what happens inside an engine, write anything to the API server, or ever let a
decoder see a prompt without a complete hand-over. Layers: ``server`` and ``surface`` -> ``flow`` (the first attempt)
-> ``streaming`` (a stream and its resumes) -> ``pairing`` (a pair of pods for either) and the modules that do I/O
(``upstream``, ``relay``, ``release``, ``discovery``) -> pure modules (``clientbody``, ``legs``, ``answers``, ``told``,
``assemble``, ``policies``).
"""
