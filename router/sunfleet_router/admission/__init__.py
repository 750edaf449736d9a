"""Who may begin, and who has room: the books and the lines of one process.

Limits of tasks and keys (``gate``), decode room (``decode_room``), work under way (``load``), and those who wait for
either (``line``, ``lobby``, ``waiting``). Must not talk to an engine or see more of a body than its size and limits;
where there is room is for ``policies`` to say.
"""
